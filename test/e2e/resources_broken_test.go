package e2e

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// Custom resources that pass the schema and not the compiler are refused at kubectl apply; where they get in all the
// same, they stop nothing that works, and everybody is told.
func TestBrokenCustomResources(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.applyDefinitions(t.Context()))
	w.createShop(t)
	c := newResourceInstall(t, w, resourceOptions{}).start(t)

	good := policyNamed("red", "object.metadata.name != 'red'", "") + policyNamed("blue", "object.metadata.name != 'blue'", "") +
		profileNamed("logs") + exceptionNamed("legacy", "red", "object.metadata.labels.legacy == 'yes'")
	must(t, w.apply(t.Context(), good))
	w.refuses(t, "red", "no red")
	w.refuses(t, "blue", "no blue")
	w.refuses(t, "green", "")
	w.sidecarImages(t, "x")
	legacy := pod("red")
	legacy.Labels = map[string]string{"legacy": "yes"}
	support.Eventually(t, "the exception", func() error {
		if got := w.verdict(t.Context(), legacy); got != "" {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
	for _, object := range [][3]string{{"admissionpolicy", "", "red"}, {"sidecarprofile", "", "logs"}, {"policyexception", system, "legacy"}} {
		w.hasConditions(t, object[0], object[1], object[2], "Compiled=True/Compiled", inUse, healthy)
	}

	// Each with more than one error: all are told at once.
	broken := map[string]string{
		"red": `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: red}
spec:
  validationActions: [Deny]
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "object.metadata.name !="}, {expression: "nonsense"}]
`,
		"never":  policyNamed("never", "object.metadata.name ==", ""),
		"ignore": policyNamed("ignore", "object.metadata.name ==", "\n  failurePolicy: Ignore"),
		"logs":   strings.Replace(profileNamed("logs"), "image: x", `image: "${nothing}"`, 1),
		"legacy": exceptionNamed("legacy", "red", "object.metadata.name =="),
	}
	findings := map[string][]string{
		"red":    {"spec.validations[0].expression: 1:24", `spec.validations[1].expression: 1:1 in "nonsense": "nonsense" is not declared`},
		"never":  {"spec.validations[0].expression: 1:24"},
		"ignore": {"spec.validations[0].expression: 1:24"},
		"logs":   {"${nothing}"},
		"legacy": {"spec.match.matchConditions[0].expression"},
	}
	for name, documents := range broken {
		err := w.apply(t.Context(), documents)
		if err == nil {
			t.Errorf("%s is not refused", name)
			continue
		}
		for _, text := range append(findings[name], `"`+name+`" is invalid`) {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("the refusal of %s does not say %q: %v", name, text, err)
			}
		}
	}
	w.refuses(t, "red", "no red")

	// Without our own webhook they get in.
	registered := c.withoutDocuments(t)
	must(t, w.apply(t.Context(), broken["red"]+"---\n"+broken["logs"]+broken["legacy"]))
	w.hasConditions(t, "admissionpolicy", "", "red", append(findings["red"], "Compiled=False/Invalid", "Ready=False/PreviousVersionInUse", "Degraded=True/PreviousVersionInUse")...)
	w.hasConditions(t, "sidecarprofile", "", "logs", "${nothing}", "Compiled=False/Invalid", "Ready=False/PreviousVersionInUse", "Degraded=True/PreviousVersionInUse")
	w.hasConditions(t, "policyexception", system, "legacy", "spec.match.matchConditions[0].expression", "Compiled=False/Invalid", "Ready=False/NotUsed")
	w.event(t, metav1.NamespaceDefault, "AdmissionPolicy", "red", "Invalid", `"nonsense" is not declared`)
	w.event(t, metav1.NamespaceDefault, "AdmissionPolicy", "red", "PreviousVersionInUse", "")
	w.event(t, system, "PolicyException", "legacy", "Invalid", "matchConditions[0]")
	for _, object := range []string{"AdmissionPolicy/red", "SidecarProfile/logs", "PolicyException/" + system + "/legacy"} {
		if n := c.logged(t, object, func(l *logLine) bool { return l.Object == object && l.Level == "ERROR" && l.Finding != "" }); n > len(findings["red"]) {
			t.Errorf("%d lines are about %s", n, object)
		}
	}
	c.logged(t, "what it means", func(l *logLine) bool {
		return strings.Contains(l.Message, "custom resources have errors") && strings.Contains(l.Message, "kubectl get gatehouse")
	})
	c.counts(t, map[[2]string]float64{
		{"AdmissionPolicy", "previous"}: 1, {"AdmissionPolicy", "current"}: 1, {"SidecarProfile", "previous"}: 1, {"PolicyException", "unused"}: 1,
	})
	w.refuses(t, "red", "no red")
	w.refuses(t, "blue", "no blue")
	w.sidecarImages(t, "x")
	support.Eventually(t, "an exception with errors lets nothing pass", func() error {
		if got := w.verdict(t.Context(), legacy); !strings.Contains(got, "no red") {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})

	// Others go on while these are broken.
	must(t, w.apply(t.Context(), policyNamed("blue", "object.metadata.name != 'navy'", "")))
	w.refuses(t, "navy", "no blue")
	w.refuses(t, "blue", "")
	w.refuses(t, "red", "no red")

	// Of policies that never compiled their failurePolicy decides.
	must(t, w.apply(t.Context(), broken["ignore"]))
	w.hasConditions(t, "admissionpolicy", "", "ignore", "Compiled=False/Invalid", "Ready=False/NotUsed")
	w.refuses(t, "green", "")
	must(t, w.apply(t.Context(), broken["never"]))
	w.hasConditions(t, "admissionpolicy", "", "never", "Compiled=False/Invalid", "Ready=False/NotUsed")
	w.refuses(t, "green", "never")
	c.counts(t, map[[2]string]float64{{"AdmissionPolicy", "unused"}: 2, {"AdmissionPolicy", "previous"}: 1})

	// Mended, with the webhook back.
	registered()
	must(t, w.apply(t.Context(), good+policyNamed("never", "object.metadata.name != 'never'", "")+policyNamed("ignore", "object.metadata.name != 'ignore'", "\n  failurePolicy: Ignore")))
	for _, object := range [][3]string{
		{"admissionpolicy", "", "red"}, {"admissionpolicy", "", "never"}, {"sidecarprofile", "", "logs"}, {"policyexception", system, "legacy"},
	} {
		w.hasConditions(t, object[0], object[1], object[2], "Compiled=True/Compiled", inUse, healthy)
	}
	w.event(t, metav1.NamespaceDefault, "AdmissionPolicy", "red", "Compiled", "uses the object again")
	w.refuses(t, "green", "")
	w.refuses(t, "never", "no never")
	w.refuses(t, "red", "no red")
	support.Eventually(t, "the exception", func() error {
		if got := w.verdict(t.Context(), legacy); got != "" {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
	c.counts(t, map[[2]string]float64{{"AdmissionPolicy", "unused"}: 0, {"AdmissionPolicy", "previous"}: 0, {"AdmissionPolicy", "current"}: 4, {"PolicyException", "current"}: 1})
}

// counts waits until the metric of custom resources has these values, by kind and state.
func (c *resourceInstall) counts(t *testing.T, want map[[2]string]float64) {
	t.Helper()
	support.Eventually(t, "the metric", func() error {
		for of, n := range want {
			got, err := c.server.Metric(t.Context(), "gatehouse_custom_resources", `kind="`+of[0]+`"`, `state="`+of[1]+`"`)
			if err != nil || got != n {
				return fmt.Errorf("%v: got %v, %w, want %v", of, got, err, n)
			}
		}
		return nil
	})
}

// withoutDocuments takes the webhook for documents away until the function that it returns is called.
func (c *resourceInstall) withoutDocuments(t *testing.T) func() {
	t.Helper()
	configurations := c.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	patch := func(value string) {
		t.Helper()
		found, err := configurations.Get(t.Context(), c.name, metav1.GetOptions{})
		must(t, err)
		for i := range found.Webhooks {
			if strings.HasPrefix(found.Webhooks[i].Name, "documents.") {
				_, err := configurations.Patch(t.Context(), c.name, types.JSONPatchType,
					fmt.Appendf(nil, `[{"op":"replace","path":"/webhooks/%d/rules/0/apiGroups","value":[%q]}]`, i, value), metav1.PatchOptions{})
				must(t, err)
				return
			}
		}
		t.Fatal("there is no webhook for documents")
	}
	probe := policyNamed("probe", "nonsense", "")
	asked := func(refused bool) {
		t.Helper()
		support.Eventually(t, "the API server knows", func() error {
			kubectl := c.Kubectl(t.Context(), "create", "--dry-run=server", "--filename", "-")
			kubectl.Stdin = strings.NewReader(probe)
			output, err := kubectl.CombinedOutput()
			if (err != nil) != refused {
				return fmt.Errorf("%w: %s", err, output)
			}
			return nil
		})
	}
	patch("nothing.gatehouse.dev")
	asked(false)
	return func() {
		patch("gatehouse.dev")
		asked(true)
	}
}
