//go:build reallvm

package crash

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// victim is a driver in a separate process, with a tracer: it runs requests, one after the other, until it is killed.
type victim struct {
	tracer
	requests *os.File
	answers  chan string   // one for each request; closed when it has ended
	dead     chan struct{} // closed when the driver has ended
	gone     chan struct{} // closed when its child processes have ended too

	words sync.Mutex
	said  strings.Builder
}

// The victim's environment variable, and the prefix of its answers.
const (
	victimFolder = "NODELVM_TEST_VICTIM"
	victimSays   = "victim: "
	victimDone   = "done"
)

func startVictim(t testing.TB, dir string) *victim {
	t.Helper()
	in, requests, err := os.Pipe()
	hosttest.Must(t, err)
	out, says, err := os.Pipe()
	hosttest.Must(t, err)
	v := &victim{requests: requests, answers: make(chan string, 1), dead: make(chan struct{}), gone: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // permanently: the thread ends with this goroutine
		defer close(v.gone)
		process, err := os.StartProcess(os.Args[0], []string{os.Args[0], "-test.run=^TestCrashVictim$"}, &os.ProcAttr{
			Env: append(os.Environ(), victimFolder+"="+dir), Files: []*os.File{in, says, says}, Sys: &syscall.SysProcAttr{Ptrace: true},
		})
		if err == nil {
			err = v.begin(process.Pid)
		}
		_, _ = in.Close(), says.Close() // the child has its own
		started <- err
		if err != nil {
			return
		}
		err = v.follow(func(pid int) {
			if pid == v.victim {
				close(v.dead)
			}
		})
		if err != nil {
			v.note(err.Error())
		}
	}()
	hosttest.Must(t, <-started)
	go v.listen(out)
	return v
}

// listen reads the victim's output to its end.
func (v *victim) listen(out *os.File) {
	defer func() { _ = out.Close() }()
	defer close(v.answers)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if answer, is := strings.CutPrefix(lines.Text(), victimSays); is {
			v.answers <- answer
		} else {
			v.note(lines.Text())
		}
	}
}

func (v *victim) note(line string) {
	v.words.Lock()
	defer v.words.Unlock()
	_, _ = fmt.Fprintln(&v.said, line)
}

func (v *victim) everythingSaid() string {
	v.words.Lock()
	defer v.words.Unlock()
	return v.said.String()
}

// ask makes the victim run the request of a case, and waits until it has answered or died.
func (v *victim) ask(t testing.TB, request string) (answer string, alive bool) {
	t.Helper()
	_, err := fmt.Fprintln(v.requests, request)
	hosttest.Must(t, err)
	select {
	case answer, alive = <-v.answers:
	case <-time.After(wait.Limit(2 * time.Minute)):
		t.Fatalf("the victim does not answer %q:\n%s", request, v.everythingSaid())
	}
	if !alive {
		<-v.dead
	}
	return answer, alive
}

// end ends the victim, if it runs, and waits for its child processes.
func (v *victim) end() {
	if v == nil {
		return
	}
	_ = v.requests.Close()
	select {
	case <-v.dead:
	default:
		_ = unix.Kill(v.victim, unix.SIGKILL)
	}
	<-v.gone
}

// TestCrashVictim is the driver that TestCrash_RealLVM kills. If its lvm dies, it repeats the request, as any caller does.
func TestCrashVictim(t *testing.T) {
	dir := os.Getenv(victimFolder)
	if dir == "" {
		return // it runs only as part of the other test
	}
	hosttest.Must(t, stopAtPoints())
	for requests := bufio.NewScanner(os.Stdin); requests.Scan(); {
		var op int
		c := &crash{t: t, b: hosttest.Fixture{Group: crashGroup, Read: reallvm.ReadDisks}}
		_, err := fmt.Sscan(requests.Text(), &op, &c.n, &c.size)
		hosttest.Must(t, err)
		c.op = crashOps[op]
		d := reallvm.NewDriver(t, dir, func(*lvm.Config) {})
		if err = c.op.do(c, d); err != nil {
			fmt.Println(err)
			err = c.op.do(c, d)
		}
		d.Stop(t)
		if err != nil {
			fmt.Println(victimSays+"failed:", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println(victimSays + victimDone)
		}
	}
}
