package convert_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// TestExcludedControls wants controls of a standard to be exempt for the containers that Kyverno exempts them for, by the rule itself and by
// an exception.
func TestExcludedControls(t *testing.T) {
	t.Parallel()
	resources := request.NewResources(nil)
	pod := func(containers, spec string) string {
		return "{metadata: {name: x}, spec: {" + spec + "containers: [" + containers + "]}}"
	}
	const (
		old  = `{name: old, image: "registry.example/legacy/team/app:v1", securityContext: {privileged: true}}`
		free = `{name: free, image: "registry.example/app", securityContext: {privileged: true}}`
		good = `{name: good, image: "registry.example/app"}`
	)
	for _, row := range []struct {
		name, excluded string
		// byRule is false for what only an exception can leave out.
		byRule          bool
		exempt, refused string
	}{
		{
			"images below a path", `{controlName: Privileged Containers, images: ["registry.example/legacy/*"]}`, true,
			pod(old, "") + "\n" + pod(old+", "+good, "") + "\n" + pod(good, "initContainers: ["+old+"], "),
			pod(free, "") + "\n" + pod(old+", "+free, "") + "\n" + pod(old, "hostPID: true, "),
		},
		{"one image", `{controlName: Privileged Containers, images: ["registry.example/app"]}`, true, pod(free, ""), pod(strings.Replace(free, "/app", "/app:v1", 1), "")},
		{"all images", `{controlName: Privileged Containers, images: ["*"]}`, true, pod(free, ""), pod(free, "hostPID: true, ")},
		{"another control", `{controlName: Host Ports, images: ["*"]}`, true, "", pod(free, "")},
		{
			"two controls", `{controlName: Privileged Containers, images: ["registry.example/*"]}, {controlName: Host Ports, images: ["registry.example/*"]}`, true,
			pod(strings.Replace(free, "{", "{ports: [{containerPort: 80, hostPort: 80}], ", 1), ""), pod(free, "hostNetwork: true, "),
		},
		{"a control of the pod", `{controlName: Host Namespaces}`, false, pod(good, "hostPID: true, "), pod(free, "hostPID: true, ")},
		{
			"a control of the pod, and one of containers", `{controlName: Host Namespaces}, {controlName: Privileged Containers, images: ["registry.example/app*"]}`, false,
			pod(free, "hostPID: true, "), pod(old, "hostPID: true, "),
		},
	} {
		const rule = "validate: {podSecurity: {level: baseline, version: latest"
		documents := map[string]string{
			"an exception": clusterPolicy(rule+"}}") + "---\napiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {name: e, namespace: gatehouse-system}\nspec:\n" +
				"  exceptions: [{policyName: p, ruleNames: [r]}]\n  match: {any: [{resources: {kinds: [Pod], namespaces: [default]}}]}\n  podSecurity: [" + row.excluded + "]\n",
		}
		if row.byRule {
			documents["the rule"] = clusterPolicy(rule + ", exclude: [" + row.excluded + "]}}")
		}
		for by, document := range documents {
			t.Run(row.name+" by "+by, func(t *testing.T) {
				t.Parallel()
				out := convert.Convert(read(t, document), convert.Options{})
				for _, r := range out.Results {
					if r.Status == convert.Not {
						t.Fatalf("not converted: %+v", r)
					}
				}
				set := compile(t, out, "").Policy
				for verdict, objects := range map[bool]string{true: row.exempt, false: row.refused} {
					for object := range strings.Lines(objects) {
						d := set.Decide(t.Context(), policy.Input{Request: mustRequest(t, resources, object)})
						if got := d.Response().Allowed; got != verdict {
							t.Errorf("allowed: %v, want %v: %s\n%v", got, verdict, object, d.Violations)
						}
					}
				}
			})
		}
	}
}

// TestExcludedControlsNotConverted has what of a control cannot be left out.
func TestExcludedControlsNotConverted(t *testing.T) {
	t.Parallel()
	for excluded, construct := range map[string]string{
		`{controlName: Privileged Containers}`:                              "a control of containers without images",
		`{controlName: Ports, images: ["*"]}`:                               `the control "Ports"`,
		`{controlName: Capabilities, images: ["*"], values: [SYS_ADMIN]}`:   "single fields or values of a control",
		`{controlName: Sysctls, restrictedField: spec.securityContext}`:     "single fields or values of a control",
		`{controlName: Capabilities, images: ["*/legacy/*"]}`:               `the image "*/legacy/*"`,
		`{controlName: Capabilities, images: ["*nginx*"]}`:                  `the image "*nginx*"`,
		`{controlName: Capabilities, images: ["registry.example*"]}`:        `the image "registry.example*"`,
		`{controlName: Capabilities, images: ["registry.example/app:v?"]}`:  `the image "registry.example/app:v?"`,
		`{controlName: Capabilities, images: ["registry.example/UPPER/*"]}`: `the image "registry.example/UPPER/*"`,
	} {
		out := convert.Convert(read(t, clusterPolicy("validate: {podSecurity: {level: baseline}}")+
			"---\napiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {name: e, namespace: ns}\nspec: {exceptions: [{policyName: p, ruleNames: [r]}], match: {any: [{resources: {kinds: [Pod], names: [x]}}]}, podSecurity: ["+excluded+"]}\n"), convert.Options{})
		if r := out.Results[len(out.Results)-1]; r.Status != convert.Not || !strings.Contains(r.Problems[0].Construct, construct) || r.Problems[0].Instead == "" {
			t.Errorf("%s: %+v, want %q", excluded, r, construct)
		}
		out = convert.Convert(read(t, clusterPolicy("validate: {podSecurity: {level: baseline, exclude: ["+excluded+"]}}")), convert.Options{})
		if r := out.Results[0]; r.Status != convert.Not || !strings.Contains(r.Problems[0].Construct, construct) {
			t.Errorf("%s: %+v, want %q", excluded, r, construct)
		}
	}
}
