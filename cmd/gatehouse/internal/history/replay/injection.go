package replay

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

// injectsOtherwise reports whether the profiles of the configuration may inject something else into a new
// pod than the recorded ones, which have been applied to it: policies would judge another pod. Updates do
// not inject, so they are of what the pod had before.
//
// If the recorded configuration is not known, the status annotation of the pod decides.
func (d *decider) injectsOtherwise(ctx context.Context, s *webhooks.Snapshot, item *Item) bool {
	if !sidecar.IsNewPod(&item.request) || d.hasProfilesOf(item.base) {
		return false
	}
	d.playback.missing = nil
	found, err := s.Sidecar.PodStatus(ctx, item.request.Namespace, item.request.Object.Raw)
	if err == nil {
		err = d.playback.missing
	}
	if err != nil && item.base != nil {
		return true
	}
	for i := range found {
		if p := &found[i]; p.Stale || err == nil && p.Injected != p.Matched {
			return true
		}
	}
	annotation := rawjson.Value(item.request.Object.Raw).Get("metadata", "annotations", v1alpha1.StatusAnnotation)
	had, err := status.Parse(annotation.Text())
	return err == nil && slices.ContainsFunc(had.Profiles, func(e status.Entry) bool {
		return !slices.Contains(s.Sidecar.Profiles(), e.Name)
	})
}

// hasProfilesOf reports whether the configuration has the sidecar profiles of another one, which may be
// nil, and the same presets for them.
func (d *decider) hasProfilesOf(other *configuration) bool {
	if d.compared != other || other == nil {
		d.compared, d.same = other, other != nil && d.configuration.hasProfilesOf(other)
	}
	return d.same
}

func (c *configuration) hasProfilesOf(other *configuration) bool {
	if c == other {
		return true
	}
	return slices.EqualFunc(c.sortedProfiles(), other.sortedProfiles(), func(a, b *v1alpha1.SidecarProfile) bool {
		return a.Name == b.Name && equality.Semantic.DeepEqual(a.Spec, b.Spec) && !slices.ContainsFunc(a.Spec.Presets, func(p v1alpha1.SidecarPreset) bool {
			data, has := c.configMap(p.ConfigMap.Namespace, p.ConfigMap.Name)
			before, had := other.configMap(p.ConfigMap.Namespace, p.ConfigMap.Name)
			return has != had || !maps.Equal(data, before)
		})
	})
}

// mutatesOtherwise reports whether the mutating policies of the configuration may make something else of an object than the recorded
// ones, which have been applied to it: those that are new change it, or one of the recorded ones that are gone or differ was about it.
func (d *decider) mutatesOtherwise(ctx context.Context, s *webhooks.Snapshot, item *Item) bool {
	if item.base == d.configuration {
		return false
	}
	d.playback.lacking = nil
	request := item.request
	changed := admit.Mutate(ctx, s.Mutation, &request, false)
	if changed.Object != nil || changed.Err != nil || d.undecidedMutation(item, &changed) != "" {
		return true
	}
	if item.base == nil || len(item.base.config.Mutation.Policies) == 0 {
		return false
	}
	before, err := item.base.snapshot()
	if err != nil {
		return true
	}
	lookups := s.Mutation.Lookups()
	lookups.Schemas = before.Mutation.Lookups().Schemas
	had := before.Mutation.With(lookups).Decide(ctx, mutation.Input{Request: item.request})
	return d.playback.lacking != nil || slices.ContainsFunc(had.Applied, func(a mutation.Application) bool { return !d.configuration.hasMutationOf(item.base, a.Policy) })
}

// hasMutationOf reports whether the configuration has the mutating policy of that name of another one, with the same bindings.
func (c *configuration) hasMutationOf(other *configuration, name string) bool {
	return equality.Semantic.DeepEqual(c.mutationSpecs(name), other.mutationSpecs(name))
}

// mutationSpecs returns the specs of a mutating policy, under "", and of its bindings by their names.
func (c *configuration) mutationSpecs(name string) map[string]any {
	specs := map[string]any{}
	for i := range c.config.Mutation.Policies {
		if p := &c.config.Mutation.Policies[i]; p.Name == name {
			specs[""] = &p.Spec
		}
	}
	for i := range c.config.Mutation.Bindings {
		if b := &c.config.Mutation.Bindings[i]; b.Spec.PolicyName == name {
			specs[b.Name] = &b.Spec
		}
	}
	return specs
}

// sortedProfiles returns the sidecar profiles by name.
func (c *configuration) sortedProfiles() []*v1alpha1.SidecarProfile {
	var out []*v1alpha1.SidecarProfile
	for i := range c.config.Sidecar.Profiles {
		out = append(out, &c.config.Sidecar.Profiles[i].SidecarProfile)
	}
	slices.SortFunc(out, func(a, b *v1alpha1.SidecarProfile) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
