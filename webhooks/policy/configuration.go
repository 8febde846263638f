package policy

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// configuration takes what holds for all policies.
func (c *compilation) configuration(given *Configuration) {
	var custom []v1alpha1.WorkloadKind
	if given != nil {
		d := validation.Reporter{Source: given.Source, Object: configurationKind, List: &c.diagnostics}
		if given.CELCompatibilityVersion != "" {
			if versions := compatibilityVersions(); slices.Contains(versions, given.CELCompatibilityVersion) {
				c.set.version = given.CELCompatibilityVersion
			} else {
				d.Errorf(field.NewPath("celCompatibilityVersion"), fmt.Sprintf("allowed are %q to %q", versions[0], versions[len(versions)-1]),
					"%q is not a known version", given.CELCompatibilityVersion)
			}
		}
		if budget := given.RequestCostBudget; budget != nil {
			switch path := field.NewPath("requestCostBudget"); {
			case *budget <= 0:
				d.Errorf(path, "", "%d is not allowed: it must be more than 0", *budget)
			case *budget < celconfig.RuntimeCELCostBudget:
				d.Warnf(path, "what costs more is answered with HTTP 500", "%d is less than the %d that upstream lets one binding spend", *budget, celconfig.RuntimeCELCostBudget)
			}
			c.set.budget = *budget
		}
		custom = given.Workloads
	}
	all := workload.FromAPI(custom)
	for _, problem := range workload.Check(all) {
		c.diagnostics = append(c.diagnostics, diagnostic.Diagnostic{
			Severity: diagnostic.Error, Source: given.Source, Object: configurationKind, Field: problem.Field, Message: problem.Detail,
		})
		all = nil // the built-in ones are right
	}
	c.set.workloads, _ = workload.New(all)
}

// compatibilityVersions returns those from the first one that has policies to that of
// the library.
func compatibilityVersions() []string {
	const first, last = 30, 37
	var out []string
	for minor := first; minor <= last; minor++ {
		out = append(out, fmt.Sprintf("1.%d", minor))
	}
	return out
}
