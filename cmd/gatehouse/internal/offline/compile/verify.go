package compile

import (
	"errors"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// The limits of the API server.
const (
	maxExpression      = 10_000 // characters
	maxMatchConditions = 64
	maxDocument        = 1 << 20 // bytes
)

// verify leaves out what the API server would refuse. Of policies with the same spec, one is compiled.
func (c *compilation) verify() error {
	spec, same := c.out.Spec(c.options.Kubernetes), map[string]string{}
	all, hashes := spec.Policies, map[string]string{}
	spec.Policies = nil
	for i := range all {
		hashes[all[i].Name] = all[i].Annotations[HashAnnotation]
		if hash := all[i].Annotations[HashAnnotation]; same[hash] == "" {
			same[hash] = all[i].Name
			spec.Policies = append(spec.Policies, all[i])
		}
	}
	for i := range spec.Bindings {
		b := &spec.Bindings[i]
		b.Spec.PolicyName = same[hashes[b.Spec.PolicyName]]
	}
	_, err := policy.Compile(spec)
	found, is := errors.AsType[diagnostic.List](err)
	if err != nil && !is {
		return err
	}
	wrong := map[string]string{}
	for _, d := range found {
		if d.Severity == diagnostic.Error && wrong[d.Source] == "" {
			wrong[d.Source] = d.Field + ": " + d.Message
		}
	}
	for i := range all {
		problem := wrong[same[all[i].Annotations[HashAnnotation]]]
		if problem == "" {
			continue
		}
		wrong[all[i].Name] = problem
		for _, item := range c.items[all[i].Name] {
			item.stay("the compiled policy would be refused: " + problem)
		}
	}
	c.out.Documents = slices.DeleteFunc(c.out.Documents, func(d Document) bool {
		if d.Policy != nil {
			return wrong[d.Policy.Name] != ""
		}
		if d.Binding == nil {
			return false
		}
		return wrong[d.Binding.Spec.PolicyName] != "" || wrong[d.Binding.Name] != ""
	})
	return nil
}
