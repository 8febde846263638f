package admission

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// judgeProfile compiles a profile with all others that are in use, because profiles
// name each other, and must not add the same to one pod.
func judgeProfile(current *config.Config, profile *v1alpha1.SidecarProfile, stop func() error) diagnostic.List {
	others := slices.DeleteFunc(slices.Clone(current.Sidecar.Profiles), func(p sidecar.Profile) bool { return p.Name == profile.Name })
	one := sidecar.Profile{Source: config.ClusterSource, SidecarProfile: *profile}
	found := compileProfiles(current, append(slices.Clip(others), one), stop)
	object := sidecarProfile + "/" + profile.Name
	own, elsewhere := about(found, object)
	if hasErrors(elsewhere) {
		// What is wrong without this profile is not for its author to mend.
		own = append(own, caused(object, elsewhere, compileProfiles(current, others, stop))...)
	}
	if rollout := profile.Spec.Rollout; rollout != nil && rollout.Replaces != "" && rollout.Replaces != profile.Name && !isProfile(others, rollout.Replaces) {
		for i := range own {
			if f := &own[i]; f.Field == "spec.rollout.replaces" && f.Severity == diagnostic.Error {
				// It may come with the next object.
				f.Severity, f.Message = diagnostic.Warning, f.Message+", so this one is not used until there is one"
			}
		}
	}
	return own
}

func isProfile(profiles []sidecar.Profile, name string) bool {
	return slices.ContainsFunc(profiles, func(p sidecar.Profile) bool { return p.Name == name })
}

// compileProfiles is everything that there is to say about profiles together.
func compileProfiles(current *config.Config, profiles []sidecar.Profile, stop func() error) diagnostic.List {
	set, err := sidecar.Compile(sidecar.Spec{Profiles: profiles, Namespaces: current.Sidecar.Namespaces, ConfigMaps: current.Sidecar.ConfigMaps, Stop: stop})
	if err != nil {
		return listOf(err, stop)
	}
	return set.Warnings()
}

// caused are the errors in other objects that are not there without an object, as
// errors of that object.
func caused(object string, with, without diagnostic.List) diagnostic.List {
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
		f.Message = fmt.Sprintf("makes %s wrong: %s: %s", f.Object, cmp.Or(f.Field, "spec"), f.Message)
		f.Object, f.Field = object, "spec"
		out = append(out, f)
	}
	return out
}
