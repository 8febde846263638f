package admission

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// diagnoseProfile compiles a profile with all other active ones, because profiles refer to
// each other and can conflict.
func diagnoseProfile(current *config.Config, profile *v1alpha1.SidecarProfile, stop func() error) diagnostic.List {
	others := slices.DeleteFunc(slices.Clone(current.Sidecar.Profiles), func(p sidecar.Profile) bool { return p.Name == profile.Name })
	one := sidecar.Profile{Source: config.ClusterSource, SidecarProfile: *profile}
	found := compileProfiles(current, append(slices.Clip(others), one), stop)
	object := sidecarProfile + "/" + profile.Name
	own, elsewhere := partition(found, object)
	if hasErrors(elsewhere) {
		// Errors without this profile are not its own.
		own = append(own, causedBy(object, elsewhere, compileProfiles(current, others, stop))...)
	}
	if rollout := profile.Spec.Rollout; rollout != nil && rollout.Replaces != "" && rollout.Replaces != profile.Name && !hasProfile(others, rollout.Replaces) {
		for i := range own {
			if f := &own[i]; f.Field == "spec.rollout.replaces" && f.Severity == diagnostic.Error {
				// It may be applied next.
				f.Severity, f.Message = diagnostic.Warning, f.Message+", so this one is not active until there is one"
			}
		}
	}
	return own
}

func hasProfile(profiles []sidecar.Profile, name string) bool {
	return slices.ContainsFunc(profiles, func(p sidecar.Profile) bool { return p.Name == name })
}

// compileProfiles returns the diagnostics of profiles together.
func compileProfiles(current *config.Config, profiles []sidecar.Profile, stop func() error) diagnostic.List {
	set, err := sidecar.Compile(sidecar.Spec{Profiles: profiles, Namespaces: current.Sidecar.Namespaces, ConfigMaps: current.Sidecar.ConfigMaps, Stop: stop})
	if err != nil {
		return diagnosticsOf(err, stop)
	}
	return set.Warnings()
}

// causedBy returns the errors in other objects that an object causes, as errors of that
// object.
func causedBy(object string, with, without diagnostic.List) diagnostic.List {
	type identity struct{ object, field, message string }
	before := make(map[identity]bool, len(without))
	for _, f := range without {
		if f.Severity == diagnostic.Error {
			before[identity{f.Object, f.Field, f.Message}] = true
		}
	}
	var out diagnostic.List
	for _, f := range with {
		if f.Severity != diagnostic.Error || before[identity{f.Object, f.Field, f.Message}] {
			continue
		}
		f.Message = fmt.Sprintf("breaks %s: %s: %s", f.Object, cmp.Or(f.Field, "spec"), f.Message)
		f.Object, f.Field = object, "spec"
		out = append(out, f)
	}
	return out
}
