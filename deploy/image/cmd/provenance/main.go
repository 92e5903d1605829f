// Command provenance writes where the files of a release come from, as an in-toto statement with SLSA's predicate:
//
//	go run ./cmd/provenance --version v0.1.0 --commit COMMIT [--dependency NAME=sha256:HEX]... FILE... >provenance.json
//
// It says the same for the same files: it has no time.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

const source = "https://github.com/nodelvm/nodelvm"

// statement is in-toto's, version 1.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     predicate  `json:"predicate"`
}

// resource is in-toto's resource descriptor.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

// predicate is SLSA's provenance, version 1.
type predicate struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []resource        `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID      string            `json:"id"`
			Version map[string]string `json:"version"`
		} `json:"builder"`
	} `json:"runDetails"`
}

func main() {
	version := flag.String("version", "", "the release's version")
	commit := flag.String("commit", "", "the commit that it is built from")
	var dependencies dependencyList
	flag.Var(&dependencies, "dependency", "NAME=sha256:HEX of what was built in, beside the source; may be repeated")
	flag.Parse()
	if err := run(*version, *commit, dependencies, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "provenance:", err)
		os.Exit(1)
	}
}

func run(version, commit string, dependencies []resource, files []string, out io.Writer) error {
	if version == "" || !regexp.MustCompile(`^[0-9a-f]{40}(-dirty)?$`).MatchString(commit) || len(files) == 0 {
		return errors.New("name a --version, a --commit with all its digits, and files")
	}
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, path := range files {
		digest, err := digestOf(path)
		if err != nil {
			return err
		}
		s.Subject = append(s.Subject, resource{Name: filepath.Base(path), Digest: map[string]string{"sha256": digest}})
	}
	definition := &s.Predicate.BuildDefinition
	script := source + "/blob/" + version + "/deploy/release.sh"
	definition.BuildType = script
	definition.ExternalParameters = map[string]string{"version": version}
	definition.ResolvedDependencies = append([]resource{{URI: "git+" + source + "@refs/tags/" + version, Digest: map[string]string{"gitCommit": commit}}}, dependencies...)
	s.Predicate.RunDetails.Builder.ID = script
	s.Predicate.RunDetails.Builder.Version = map[string]string{"go": runtime.Version()}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}

func digestOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, file.Close())
}

// dependencyList is a flag that may be repeated.
type dependencyList []resource

func (l *dependencyList) String() string { return fmt.Sprint(*l) }

func (l *dependencyList) Set(text string) error {
	name, digest, _ := strings.Cut(text, "=")
	sum, ok := strings.CutPrefix(digest, "sha256:")
	if name == "" || !ok || len(sum) != hex.EncodedLen(sha256.Size) {
		return fmt.Errorf("%q is not NAME=sha256:HEX", text)
	}
	*l = append(*l, resource{Name: name, Digest: map[string]string{"sha256": sum}})
	return nil
}
