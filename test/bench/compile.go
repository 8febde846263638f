package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// compileMode is the mode of this program in which it compiles, as a process of
// its own that has one processor.
const compileMode = "compile"

// compilation is a number of policies to compile.
type compilation struct {
	name      string
	documents func() []string
}

// compilations are all of them, in the order of the table, or those whose name
// matches.
func compilations(match *regexp.Regexp) []compilation {
	const count = 1000
	var selected []compilation
	for _, c := range []compilation{
		{"compile-1000-policies", func() []string { return mostlyOtherPolicies(count) }},
		{"compile-1000-middle-policies", func() []string {
			var documents []string
			for i := range count {
				mark := fmt.Sprintf("mark-%03d", i)
				documents = append(documents, middlePolicy(mark, mark))
			}
			return documents
		}},
	} {
		if match == nil || match.MatchString(c.name) {
			selected = append(selected, c)
		}
	}
	return selected
}

// compileReport is what a compilation took. Times are of the processor, garbage
// collection included.
type compileReport struct {
	Name     string        `json:"name"`
	Policies int           `json:"policies"`
	All      time.Duration `json:"allNs"`    // median
	Change   time.Duration `json:"changeNs"` // to compile again after a change of one policy; median
	Retained int64         `json:"retained"` // bytes of heap that all of it holds
}

// serveCompilations compiles and writes the reports to stdout.
func serveCompilations(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet(compileMode, flag.ContinueOnError)
	flags.SetOutput(stderr)
	times := flags.Int("times", 1, "how often each is compiled")
	names := flags.String("scenario", "", "only those whose name matches")
	if err := flags.Parse(args); err != nil {
		return err
	}
	match, err := regexp.Compile(*names)
	if err != nil {
		return err
	}
	var reports []compileReport
	for _, c := range compilations(match) {
		r, err := c.measure(*times)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		reports = append(reports, r)
	}
	return json.NewEncoder(stdout).Encode(reports)
}

// measure compiles as often as it is told, and after each time once more with
// one policy changed.
func (c compilation) measure(times int) (compileReport, error) {
	spec, err := policySpec(c.documents())
	if err != nil {
		return compileReport{}, err
	}
	changed := spec
	changed.Policies = append([]policy.Policy(nil), spec.Policies...)
	one := &changed.Policies[len(changed.Policies)/2]
	one.ValidatingAdmissionPolicy = *one.DeepCopy()
	one.Spec.Validations[0].Expression = "object.metadata.name != 'changed'"

	r := compileReport{Name: c.name, Policies: len(spec.Policies)}
	var all, changes []time.Duration
	for range times {
		before := heap()
		var set *policy.Set
		took, err := processorTime(func() (err error) {
			set, err = policy.Compile(spec)
			return err
		})
		if err != nil {
			return r, err
		}
		r.Retained = heap() - before
		all = append(all, took)
		changed.Previous = set
		took, err = processorTime(func() error {
			_, err := policy.Compile(changed)
			return err
		})
		if err != nil {
			return r, err
		}
		runtime.KeepAlive(set)
		changed.Previous = nil
		changes = append(changes, took)
	}
	itself := func(d time.Duration) time.Duration { return d }
	r.All, r.Change = median(all, itself), median(changes, itself)
	return r, nil
}

// heap is what is alive on the heap, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below 2^63
}

// processorTime is what this process uses during a call.
func processorTime(call func() error) (time.Duration, error) {
	before, err := settledTime(os.Getpid())
	if err != nil {
		return 0, err
	}
	if err := call(); err != nil {
		return 0, err
	}
	after, err := settledTime(os.Getpid())
	return after - before, err
}

// policySpec reads the documents of ValidatingAdmissionPolicies and their
// bindings.
func policySpec(documents []string) (policy.Spec, error) {
	var spec policy.Spec
	for _, text := range documents {
		for one := range strings.SplitSeq(text, "---\n") {
			var kind struct{ Kind string }
			if err := yaml.Unmarshal([]byte(one), &kind); err != nil {
				return spec, err
			}
			var into any
			switch kind.Kind {
			case "ValidatingAdmissionPolicy":
				spec.Policies = append(spec.Policies, policy.Policy{})
				into = &spec.Policies[len(spec.Policies)-1].ValidatingAdmissionPolicy
			case "ValidatingAdmissionPolicyBinding":
				spec.Bindings = append(spec.Bindings, policy.Binding{})
				into = &spec.Bindings[len(spec.Bindings)-1].ValidatingAdmissionPolicyBinding
			default:
				return spec, fmt.Errorf("a document of kind %q", kind.Kind)
			}
			if err := yaml.UnmarshalStrict([]byte(one), into); err != nil {
				return spec, err
			}
		}
	}
	return spec, nil
}

// compileAlone has the selected compilations measured by a process of their own,
// which has one processor.
func compileAlone(ctx context.Context, o options, stderr io.Writer) ([]compileReport, error) {
	times := 3
	if o.quick {
		times = 1
	}
	args := []string{compileMode, "--times", fmt.Sprint(times)}
	if o.scenario != nil {
		args = append(args, "--scenario", o.scenario.String())
	}
	command := exec.CommandContext(ctx, o.executable, args...) //nolint:gosec // this very program
	command.Env = append(os.Environ(), "GOMAXPROCS=1")
	command.Stderr = stderr
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("compiling policies: %w", err)
	}
	var reports []compileReport
	if err := json.Unmarshal(text, &reports); err != nil {
		return nil, fmt.Errorf("compiling policies: %w", err)
	}
	return reports, nil
}
