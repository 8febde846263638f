package install

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/registration"
)

// checkCRDs returns an error for each flag that cannot be combined with --crds.
func (f *manifestsFlags) checkCRDs(cmd *cobra.Command) error {
	var problems []error
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if flag.Name != "crds" && flag.Name != "output" {
			problems = append(problems, fmt.Errorf("--%s does not go with --crds, which prints the same for every installation", flag.Name))
		}
	})
	if f.output != "yaml" && f.output != "json" {
		problems = append(problems, cli.OutputError(f.output, "yaml", "json"))
	}
	return errors.Join(problems...)
}

// partNames returns the values of --part.
func partNames() []string {
	var names []string
	for _, part := range registration.Parts() {
		names = append(names, string(part))
	}
	return names
}

// wantedParts returns the parts that --part names, all of them without it.
func (f *manifestsFlags) wantedParts() []registration.Part {
	if len(f.parts) == 0 {
		return registration.Parts()
	}
	var parts []registration.Part
	for _, name := range f.parts {
		parts = append(parts, registration.Part(name))
	}
	return parts
}

// checkContents checks the flags for what is registered and printed.
func (f *manifestsFlags) checkContents(problem func(string)) {
	for _, flag := range []struct {
		given bool
		name  string
	}{
		{f.customResources, "--custom-resources"},
		{f.countPods, "--count-pods"},
		{len(f.validate) > 0, "--validate"},
		{len(f.validateOpen) > 0, "--validate-open"},
		{len(f.recordOnly) > 0, "--record-only"},
		{len(f.parts) > 0, "--part"},
	} {
		if flag.given && f.onHosts() {
			problem(flag.name + " is not for " + f.hostsFlag())
		}
	}
	for _, name := range f.parts {
		if !slices.Contains(partNames(), name) {
			problem(notOneOf("part", name, partNames()))
		}
	}
	switch {
	case len(f.recordOnly) == 0 && f.recordRatio != defaultRecordRatio:
		problem("--record-sample-ratio is for --record-only")
	case len(f.recordOnly) > 0 && !(f.recordRatio > 0 && f.recordRatio <= 1):
		problem(fmt.Sprintf("--record-sample-ratio %v: must be above 0 and at most 1 (hint: 0.1 sends a tenth of the objects)", f.recordRatio))
	}
	if _, _, _, err := f.validated(); err != nil {
		problem(err.Error())
	}
}
