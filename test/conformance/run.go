package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/test/lab"
)

// Options say what Run runs.
type Options struct {
	Lab   *lab.Lab       // up, with the driver installed
	Dir   string         // of definitions, logs, results and reports
	Only  *regexp.Regexp // matches class and text, "thin External Storage ..."; nil means all claimed specs
	Jobs  int            // number of concurrent shards
	Limit time.Duration  // for a spec
	Out   io.Writer
}

// Run runs the claimed specs that have not passed yet. It returns a summary of all specs, including those that opt.Only excludes.
// Run fails if it cannot run a shard; failures of specs are only in the summary.
func Run(ctx context.Context, opt Options) (Summary, error) {
	s, err := prepare(ctx, opt)
	if err != nil {
		return Summary{}, err
	}
	all, err := s.listAll(ctx, opt.Dir)
	if err != nil {
		return Summary{}, err
	}
	done, err := loadResults(opt.Dir)
	if err != nil {
		return Summary{}, err
	}
	r := runner{Options: opt, suite: s, results: done}
	err = r.runAll(ctx, makeShards(r.todo(all)))
	return Summary{all, r.results}, err
}

// prepare compiles the suite, imports its images into the nodes, and removes what an interrupted run left.
func prepare(ctx context.Context, opt Options) (suite, error) {
	if err := os.MkdirAll(opt.Dir, 0o755); err != nil {
		return suite{}, err
	}
	built, err := opt.Lab.Suite(ctx, opt.Out)
	if err != nil {
		return suite{}, err
	}
	if err := opt.Lab.Kubectl(ctx, nil, opt.Out, opt.Out, "rollout", "status", "-n", "nodelvm-system", "daemonset/nodelvm", "--timeout=5m"); err != nil {
		return suite{}, fmt.Errorf("the driver is not ready on every node: %w", err)
	}
	if err := allowEncryption(ctx, opt); err != nil {
		return suite{}, err
	}
	for _, archive := range built.Images {
		if err := opt.Lab.ImportImage(ctx, archive); err != nil {
			return suite{}, err
		}
	}
	if err := opt.Lab.Kubectl(ctx, nil, opt.Out, opt.Out, "delete", "namespaces", "-l", "e2e-framework", "--timeout=5m"); err != nil {
		return suite{}, fmt.Errorf("removing what an earlier run left: %w", err)
	}
	kubernetes, err := opt.Lab.Binaries(ctx)
	if err != nil {
		return suite{}, err
	}
	return newSuite(opt.Lab, built.Binary, kubernetes["kubectl"], opt.Dir)
}

func (s suite) listAll(ctx context.Context, dir string) ([]Spec, error) {
	var all []Spec
	for _, class := range definitionNames() {
		specs, err := s.list(ctx, class, filepath.Join(dir, class+"-list.log"))
		if err != nil {
			return nil, err
		}
		all = append(all, specs...)
	}
	return all, nil
}

type runner struct {
	Options
	suite suite

	mu      sync.Mutex
	results results // guarded by mu while shards run
	ended   int     // number of finished shards; guarded by mu
}

// todo returns the claimed specs that match r.Only and have not passed yet.
func (r *runner) todo(all []Spec) []Spec {
	return slices.DeleteFunc(slices.Clone(all), func(s Spec) bool {
		wanted := r.Only == nil || r.Only.MatchString(s.Class+" "+s.Text)
		return !wanted || exclusionOf(s) >= 0 || r.results.passed(s)
	})
}

// runAll runs r.Jobs shards concurrently, and then, one by one, those that must run alone.
func (r *runner) runAll(ctx context.Context, shards []shard) error {
	serial := slices.IndexFunc(shards, func(s shard) bool { return s.serial })
	if serial < 0 {
		serial = len(shards)
	}
	return errors.Join(
		r.runSome(ctx, shards[:serial], r.Jobs, len(shards)),
		r.runSome(ctx, shards[serial:], 1, len(shards)))
}

func (r *runner) runSome(ctx context.Context, shards []shard, jobs, total int) error {
	queue := make(chan shard, len(shards))
	for _, s := range shards {
		queue <- s
	}
	close(queue)
	errs := make([]error, jobs)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for s := range queue {
				if ctx.Err() != nil {
					errs[i] = ctx.Err()
					return
				}
				errs[i] = errors.Join(errs[i], r.runShard(ctx, s, total))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// runShard runs one shard and stores its results.
func (r *runner) runShard(ctx context.Context, s shard, total int) error {
	start := time.Now()
	limit := time.Duration(len(s.specs)) * r.Limit
	// ginkgo stops the specs cleanly at their limit; ctx kills a ginkgo that does not end
	ctx, cancel := context.WithTimeout(ctx, limit+5*time.Minute)
	defer cancel()
	end := func() error { return nil }
	if s.specs[0].Group() == podless {
		var err error
		if end, err = selectNodes(ctx, r.Options); err != nil {
			return err
		}
	}
	report, err := r.suite.run(ctx, s.class(), filepath.Join(r.Dir, s.name+".log"),
		"--ginkgo.focus="+s.focus(), "--ginkgo.timeout="+limit.String())
	err = errors.Join(err, end())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended++
	if err != nil {
		_, _ = fmt.Fprintf(r.Out, "[%d/%d] %s: %v\n", r.ended, total, s.name, err)
		return err
	}
	r.results.take(s.specs, report)
	counts := r.results.count(s.specs)
	_, _ = fmt.Fprintf(r.Out, "[%d/%d] %s: %s (%s)\n", r.ended, total, s.name, counts, time.Since(start).Round(time.Second))
	return r.results.save(r.Dir)
}
