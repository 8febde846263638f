package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// compilation is a number of policies to compile.
type compilation struct {
	name      string
	documents func() []string
}

// compilations returns all compilations, in the order of the table.
func compilations() []compilation {
	const count = 1000
	return []compilation{
		{"compile-1000-policies", func() []string { return mostlyOtherPolicies(count) }},
		{"compile-1000-middle-policies", func() []string {
			var documents []string
			for i := range count {
				mark := fmt.Sprintf("mark-%03d", i)
				documents = append(documents, middlePolicy(mark, mark))
			}
			return documents
		}},
	}
}

// compiled is what a compilation took. Times are medians of processor time,
// garbage collection included.
type compiled struct {
	policies int
	all      time.Duration
	change   time.Duration // to compile again after a change of one policy
	retained int64         // bytes of heap that the compiled policies use
}

// measure compiles on one processor, as often as times says, and each time once
// more with one policy changed.
func (c compilation) measure(times int) (compiled, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	spec, err := policySpec(c.documents())
	if err != nil {
		return compiled{}, err
	}
	changed := spec
	changed.Policies = append([]policy.Policy(nil), spec.Policies...)
	one := &changed.Policies[len(changed.Policies)/2]
	one.ValidatingAdmissionPolicy = *one.DeepCopy()
	one.Spec.Validations[0].Expression = "object.metadata.name != 'changed'"

	result := compiled{policies: len(spec.Policies)}
	var all, changes []time.Duration
	for range times {
		before := heap()
		set, took, err := compile(spec)
		if err != nil {
			return result, err
		}
		result.retained = heap() - before
		all = append(all, took)
		changed.Previous = set
		_, took, err = compile(changed)
		if err != nil {
			return result, err
		}
		changed.Previous = nil
		changes = append(changes, took)
	}
	result.all, result.change = median(all), median(changes)
	return result, nil
}

// compile compiles once and returns the processor time of this process.
func compile(spec policy.Spec) (*policy.Set, time.Duration, error) {
	before, err := processTime(os.Getpid())
	if err != nil {
		return nil, 0, err
	}
	set, err := policy.Compile(spec)
	if err != nil {
		return nil, 0, err
	}
	after, err := processTime(os.Getpid())
	return set, after - before, err
}

// heap returns how many bytes are alive on the heap.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below 2^63
}

// policySpec reads the documents of ValidatingAdmissionPolicies and their
// bindings.
func policySpec(documents []string) (policy.Spec, error) {
	var spec policy.Spec
	for _, document := range documents {
		one, binding, _ := strings.Cut(document, "---\n")
		spec.Policies = append(spec.Policies, policy.Policy{})
		spec.Bindings = append(spec.Bindings, policy.Binding{})
		last := len(spec.Policies) - 1
		if err := yaml.UnmarshalStrict([]byte(one), &spec.Policies[last].ValidatingAdmissionPolicy); err != nil {
			return spec, err
		}
		if err := yaml.UnmarshalStrict([]byte(binding), &spec.Bindings[last].ValidatingAdmissionPolicyBinding); err != nil {
			return spec, err
		}
	}
	return spec, nil
}
