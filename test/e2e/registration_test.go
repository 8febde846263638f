package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// managedInstall is an install whose replicas manage its registration.
type managedInstall struct {
	*install

	replicas map[string]*gatehouse.Server
}

// newManagedInstall makes an install without replicas.
func newManagedInstall(t *testing.T, w *world) *managedInstall {
	t.Helper()
	must(t, w.applyDefinitions(t.Context()))
	w.createShop(t)
	m := &managedInstall{w.newInstall(t, system, "gatehouse", "--custom-resources", "--manage-registration"), map[string]*gatehouse.Server{}}
	printed := m.manifests(t)
	must(t, w.apply(t.Context(), gatehouse.Patient(printed)))
	m.command(t, printed, map[string]string{"--in-cluster": m.kubeconfig(t, "")}, "--namespace", system, "--log-level", "info")
	return m
}

// start starts a replica, and has it receive reviews. Other flags are appended.
func (m *managedInstall) start(t *testing.T, name string, flags ...string) {
	t.Helper()
	log := m.path(name + ".log")
	showIfFailed(t, name, log)
	server, err := gatehouse.Start(t.Context(), log, slices.Concat(m.flags, []string{"--replica", name}, flags)...)
	must(t, err)
	t.Cleanup(server.Kill)
	m.replicas[name] = server
	m.route(t)
}

// route makes the replicas the endpoints of the Service.
func (m *managedInstall) route(t *testing.T) {
	t.Helper()
	if !cluster.Namespaced() {
		return
	}
	var ports []int
	for _, name := range slices.Sorted(maps.Keys(m.replicas)) {
		ports = append(ports, int(m.replicas[name].Reviews.Port()))
	}
	must(t, m.ServiceFor(t.Context(), system, m.name, ports...))
}

// rules are the rules of the webhooks that have some, but for that for documents, and the selectors of policies.
func (m *managedInstall) rules(ctx context.Context) (map[string][]string, error) {
	found := map[string][]string{}
	add := func(name string, rules []admissionregistrationv1.RuleWithOperations, namespaces, objects *metav1.LabelSelector) {
		if name == "documents.validate.gatehouse.dev" || len(rules) == 0 {
			return
		}
		name = strings.TrimSuffix(name, ".gatehouse.dev")
		for _, r := range rules {
			for _, resource := range r.Resources {
				for _, operation := range r.Operations {
					found[name] = append(found[name], fmt.Sprintf("%s/%s %s", r.APIGroups[0], resource, operation))
				}
			}
		}
		if len(namespaces.MatchExpressions) != 1 || !slices.Contains(namespaces.MatchExpressions[0].Values, "kube-system") || !slices.Contains(namespaces.MatchExpressions[0].Values, system) {
			found[name] = append(found[name], fmt.Sprintf("namespaces %+v", namespaces.MatchExpressions))
		}
		for label, value := range namespaces.MatchLabels {
			found[name] = append(found[name], "namespaces "+label+"="+value)
		}
		for label, value := range objects.MatchLabels {
			found[name] = append(found[name], "objects "+label+"="+value)
		}
		slices.Sort(found[name])
	}
	api := m.Client().AdmissionregistrationV1()
	validating, err := api.ValidatingWebhookConfigurations().Get(ctx, m.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for i := range validating.Webhooks {
		w := &validating.Webhooks[i]
		add(w.Name, w.Rules, w.NamespaceSelector, w.ObjectSelector)
	}
	mutating, err := api.MutatingWebhookConfigurations().Get(ctx, m.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for i := range mutating.Webhooks {
		w := &mutating.Webhooks[i]
		add(w.Name, w.Rules, w.NamespaceSelector, w.ObjectSelector)
	}
	return found, nil
}

// hasRules waits until the rules are these.
func (m *managedInstall) hasRules(t *testing.T, want map[string][]string) {
	t.Helper()
	support.Eventually(t, "the rules", func() error {
		got, err := m.rules(t.Context())
		if err != nil {
			return err
		}
		if !maps.EqualFunc(got, want, slices.Equal) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
}

// policyAbout is a policy that refuses objects called red, of a resource of the core group.
func policyAbout(name, resource, failurePolicy string) string {
	text := strings.ReplaceAll(policyNamed(name, "object.metadata.name != 'red'", "\n  failurePolicy: "+failurePolicy), "resources: [pods]", "resources: ["+resource+"]")
	return strings.Replace(text, "validationActions", "workloadTemplates: Ignore\n  validationActions", 1)
}

// refusesMap waits until a ConfigMap with this name is refused, or not.
func (m *managedInstall) refusesMap(t *testing.T, name string, want bool) {
	t.Helper()
	support.Eventually(t, "the verdict on the ConfigMap "+name, func() error {
		_, err := m.Client().CoreV1().ConfigMaps("shop").Create(t.Context(), configMap(name, nil), dryRun)
		if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return err
		}
		if (err != nil) != want {
			return fmt.Errorf("want a refusal: %t; got %w", want, err)
		}
		return nil
	})
}

// sentBy is how many requests the API server has sent, by its own metrics, but to the webhook for documents.
func (m *managedInstall) sentBy(t *testing.T) float64 {
	t.Helper()
	text, err := m.Client().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	all, err := gatehouse.Sum(string(text), "apiserver_admission_webhook_admission_duration_seconds_count")
	must(t, err)
	documents, err := gatehouse.Sum(string(text), "apiserver_admission_webhook_admission_duration_seconds_count", `name="documents.validate.gatehouse.dev"`)
	must(t, err)
	return all - documents
}

// The registration follows the policies: what they match is sent, and nothing else. What somebody else
// changes is restored. Gatehouse's account can change nothing else, and uninstall removes all of it.
func TestRegistrationFollowsPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := newManagedInstall(t, w)
	m.hasRules(t, map[string][]string{})
	m.start(t, "gatehouse-a")
	if cluster.Namespaced() {
		m.start(t, "gatehouse-b")
	}
	maps := map[string][]string{"fail.validate": {"/configmaps CREATE"}}
	must(t, w.apply(t.Context(), policyAbout("maps", "configmaps", "Fail")))
	m.refusesMap(t, "red", true)
	m.refusesMap(t, "blue", false)
	w.hasConditions(t, "admissionpolicy", "", "maps", inUse, healthy)
	m.hasRules(t, maps)

	before := m.sentBy(t)
	for i := range 20 {
		name := fmt.Sprint("quiet-", i)
		_, err := w.Client().CoreV1().Secrets("shop").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
		_, err = w.Client().CoreV1().Pods("shop").Create(t.Context(), pod(name), dryRun)
		must(t, err)
	}
	if after := m.sentBy(t); after != before {
		t.Errorf("the API server sends %g requests that no policy matches", after-before)
	}

	// What the install does not include is not sent, and the policy says so.
	must(t, w.apply(t.Context(), policyAbout("hidden", "secrets", "Fail")))
	w.hasConditions(t, "admissionpolicy", "", "hidden", inUse, "NotSent", "secrets:CREATE: not sent to Gatehouse", "webhooks.includeResources")
	m.hasRules(t, maps)
	m.includes(t, "=*")
	m.hasRules(t, map[string][]string{"fail.validate": {"/configmaps CREATE", "/secrets CREATE"}})
	w.hasConditions(t, "admissionpolicy", "", "hidden", inUse, healthy)
	m.isWide(t, "/webhooks/0/rules") // what is listed may be sent

	// Everything else, by what fails open, and pods, by a profile.
	everything := strings.Replace(policyAbout("all", `"*/*"`, "Ignore"), `apiGroups: [""]`, `apiGroups: ["*"]`, 1)
	must(t, w.apply(t.Context(), everything+profileNamed("logs")))
	m.hasRules(t, map[string][]string{
		"fail.validate": {"/configmaps CREATE", "/secrets CREATE"}, "ignore.validate": {"*/*/* CREATE"},
		"asked.mutate": {"/pods CREATE"}, "default.mutate": {"/pods CREATE"},
	})
	w.hasConditions(t, "admissionpolicy", "", "all", inUse, "Degraded=True/Warnings", "every request is sent that may be")
	w.hasConditions(t, "sidecarprofile", "", "logs", inUse, healthy)
	w.sidecarImages(t, "x")
	must(t, w.CreateNamespace(t.Context(), "locked", nil))
	for _, args := range [][]string{{"delete", "admissionpolicy", "all", "hidden"}, {"delete", "sidecarprofile", "logs"}} {
		output, err := w.Kubectl(t.Context(), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	m.hasRules(t, maps)
	m.includes(t, "-")

	m.isRestored(t)
	m.isGuarded(t)

	output, err := gatehouse.Run(t.Context(), "uninstall", "--kubeconfig", w.Kubeconfig(), "--yes")
	if err != nil {
		t.Fatalf("uninstall: %v: %s", err, output)
	}
	support.Eventually(t, "that nothing is refused", func() error {
		_, err := w.Client().CoreV1().ConfigMaps("shop").Create(t.Context(), configMap("red", nil), dryRun)
		return err
	})
	if _, err := m.rules(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("after uninstall, there are rules: %v", err)
	}
}

// includes lists in both registrations which restricted resources may be sent: "=NAMES", or "-" for none.
func (m *managedInstall) includes(t *testing.T, value string) {
	t.Helper()
	output, err := m.Kubectl(t.Context(), "annotate", "mutatingwebhookconfiguration/gatehouse", "validatingwebhookconfiguration/gatehouse", "gatehouse.dev/included-resources"+value).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

// account returns a client with the token of the account. Not kubectl, which gets what it patches: the account may not.
func (m *managedInstall) account(t *testing.T) kubernetes.Interface {
	t.Helper()
	access, err := clientcmd.BuildConfigFromFlags("", strings.TrimPrefix(m.kubeconfig(t, ""), "--kubeconfig="))
	must(t, err)
	client, err := kubernetes.NewForConfig(access)
	must(t, err)
	return client
}

// guardedPatch tries a patch of a registration.
func guardedPatch(t *testing.T, client kubernetes.Interface, kind, text string) error {
	t.Helper()
	return client.AdmissionregistrationV1().RESTClient().Patch(types.JSONPatchType).Resource(kind).Name("gatehouse").
		VersionedParams(&metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ParameterCodec).Body([]byte(text)).Do(t.Context()).Error()
}

// ruleOf is a rule for everything that happens to a resource.
func ruleOf(group, resources string) string {
	return fmt.Sprintf(`{"apiGroups":["%s"],"apiVersions":["*"],"operations":["*"],"resources":["%s"]}`, group, resources)
}

// isWide has the account write the widest rules for validation.
func (m *managedInstall) isWide(t *testing.T, path string) {
	t.Helper()
	client := m.account(t)
	support.Eventually(t, "wide rules", func() error {
		return guardedPatch(t, client, "validatingwebhookconfigurations", fmt.Sprintf(`[{"op":"replace","path":%q,"value":[%s]}]`, path, ruleOf("*", "*/*")))
	})
}

// isRestored takes the rules by force, as a person or a GitOps tool does, and removes them, and writes as a leader does that does not
// know yet that it is none any more.
func (m *managedInstall) isRestored(t *testing.T) {
	t.Helper()
	apply := func(manager, version, rules string) error {
		text := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"gatehouse"` + version + `},
			"webhooks":[{"name":"fail.validate.gatehouse.dev","rules":[` + rules + `]}]}`
		_, err := m.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(t.Context(), m.name, types.ApplyPatchType, []byte(text),
			metav1.PatchOptions{FieldManager: manager, Force: new(true)})
		return err
	}
	ours := map[string][]string{"fail.validate": {"/configmaps CREATE"}}
	must(t, apply("somebody", "", `{"apiGroups":[""],"apiVersions":["v1"],"operations":["DELETE"],"resources":["configmaps"]}`))
	m.hasRules(t, ours)
	m.hasConditions(t, "admissionpolicy", "", "maps", inUse, healthy)
	output, err := m.Kubectl(t.Context(), "patch", "validatingwebhookconfiguration", "gatehouse", "--type=json", `--patch=[{"op":"remove","path":"/webhooks/0/rules"}]`).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	m.hasRules(t, ours)
	// Wider rules than anything needs are narrowed.
	output, err = m.Kubectl(t.Context(), "patch", "mutatingwebhookconfiguration", "gatehouse", "--type=json",
		`--patch=[{"op":"add","path":"/webhooks/2/rules","value":[`+ruleOf("*", "*/*")+`]}]`).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	m.hasRules(t, ours)
	if err := apply("gatehouse", `,"resourceVersion":"1"`, ""); !apierrors.IsConflict(err) {
		t.Errorf("the write of a leader that has read an earlier version: got %v, want a conflict", err)
	}
}

// isGuardedAtTheMost writes all webhooks of a kind with as many rules as one may have, and as many names of resources in them. What the expressions
// of the guard may cost must be enough for these too, and find a rule that is too wide among them.
func (m *managedInstall) isGuardedAtTheMost(t *testing.T, patch func(kind, text string) error) {
	t.Helper()
	const (
		rules, resources = 64, 500 / 64
		selector         = `{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["gatehouse-system","kube-node-lease","kube-system"]}]}`
	)
	for kind, webhooks := range map[string][]int{"mutatingwebhookconfigurations": {2, 3}, "validatingwebhookconfigurations": {0, 1}} {
		for last, admitted := range map[string]bool{
			ruleOf("last.example.org", "last"):                      true,
			ruleOf("last.example.org", "*"):                         false,
			ruleOf(`last.example.org","`, `pods/status","secrets`):  false,
			ruleOf("*", "pods"):                                     false,
			ruleOf(`a.example.org","b.example.org`, `c/*","d/exec`): true,
		} {
			var operations []string
			for _, i := range webhooks {
				all := make([]string, 0, rules)
				for n := range rules - 1 {
					names := make([]string, resources)
					for k := range names {
						names[k] = fmt.Sprintf("resources-with-a-long-name-%d-%d/status", n, k)
					}
					all = append(all, ruleOf(fmt.Sprintf("group-%d-with-a-long-name.of.some.project.example.org", n), strings.Join(names, `","`)))
				}
				operations = append(operations,
					fmt.Sprintf(`{"op":"add","path":"/webhooks/%d/namespaceSelector","value":%s}`, i, selector),
					fmt.Sprintf(`{"op":"add","path":"/webhooks/%d/rules","value":[%s,%s]}`, i, strings.Join(all, ","), last))
			}
			err := patch(kind, "["+strings.Join(operations, ",")+"]")
			if admitted && err != nil || !admitted && (err == nil || !strings.Contains(err.Error(), "denied request: Gatehouse may have sent wildcards")) {
				t.Errorf("%s, %d rules with %s: admitted should be %t, got %v", kind, rules, last, admitted, err)
			}
		}
	}
}

// isGuarded tries with the token of the account what it is not for.
func (m *managedInstall) isGuarded(t *testing.T) {
	t.Helper()
	const (
		mutating, validating = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
		denied               = "denied request: Gatehouse may"
		excluding            = `{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["gatehouse-system","kube-node-lease","kube-system"%s]}]}`
	)
	every := ruleOf("*", "*/*")
	token, client := m.kubeconfig(t, ""), m.account(t)
	patch := func(kind, text string) error { return guardedPatch(t, client, kind, text) }
	replace := func(path, value string) string {
		return fmt.Sprintf(`[{"op":"add","path":%q,"value":%s}]`, path, value)
	}
	many := "[" + strings.TrimSuffix(strings.Repeat(ruleOf("", "configmaps")+",", 65), ",") + "]"
	support.Eventually(t, "the guard", func() error { // which the API server knows a moment after it was stored
		if err := patch(validating, replace("/webhooks/0/failurePolicy", `"Ignore"`)); err == nil || !strings.Contains(err.Error(), denied) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	for what, c := range map[string]struct{ kind, text string }{
		"wider rules for injection":        {mutating, replace("/webhooks/0/rules", "["+every+"]")},
		"pods at any time for injection":   {mutating, replace("/webhooks/1/rules", `[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["pods"]}]`)},
		"excluded namespaces":              {validating, replace("/webhooks/0/namespaceSelector", `{}`)},
		"a part of the namespaces":         {validating, replace("/webhooks/0/namespaceSelector", `{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system"]}]}`)},
		"another label of the namespaces":  {validating, replace("/webhooks/0/namespaceSelector", strings.ReplaceAll(fmt.Sprintf(excluding, ""), "kubernetes.io/metadata.name", "name"))},
		"more rules than a webhook has":    {validating, replace("/webhooks/0/rules", many)},
		"rules for documents":              {validating, replace("/webhooks/2/rules", "["+every+"]")},
		"a match condition less":           {validating, `[{"op":"remove","path":"/webhooks/0/matchConditions/0"}]`},
		"a match condition more":           {validating, replace("/webhooks/0/matchConditions/-", `{"name":"never","expression":"false"}`)},
		"matchPolicy":                      {validating, replace("/webhooks/0/matchPolicy", `"Exact"`)},
		"the annotation":                   {validating, replace("/metadata/annotations/gatehouse.dev~1excluded-namespaces", `"x"`)},
		"no annotation":                    {mutating, `[{"op":"remove","path":"/metadata/annotations"}]`},
		"another address":                  {validating, replace("/webhooks/0/clientConfig", `{"url":"https://example.org"}`)},
		"one webhook more":                 {validating, replace("/webhooks/-", `{"name":"a.example.org","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://example.org"}}`)},
		"one webhook less":                 {validating, `[{"op":"remove","path":"/webhooks/1"}]`},
		"timeout":                          {validating, replace("/webhooks/0/timeoutSeconds", "7")},
		"rules and a failure policy":       {validating, `[{"op":"remove","path":"/webhooks/0/rules"},{"op":"replace","path":"/webhooks/1/failurePolicy","value":"Fail"}]`},
		"reinvocation":                     {mutating, replace("/webhooks/0/reinvocationPolicy", `"Never"`)},
		"namespaces and rules of policies": {mutating, `[{"op":"add","path":"/webhooks/2/namespaceSelector","value":{}},{"op":"add","path":"/webhooks/2/rules","value":[` + every + `]}]`},
	} {
		if err := patch(c.kind, c.text); err == nil || !strings.Contains(err.Error(), denied) {
			t.Errorf("%s: got %v, want a refusal by the guard", what, err)
		}
	}
	for what, c := range map[string]struct{ kind, text string }{
		"other rules":     {validating, replace("/webhooks/0/rules", "["+ruleOf("", "configmaps")+"]")},
		"other selectors": {validating, replace("/webhooks/0/namespaceSelector", fmt.Sprintf(excluding, `,"more"`))},
		"no rules":        {validating, `[{"op":"remove","path":"/webhooks/0/rules"}]`},
		"new pods":        {mutating, replace("/webhooks/0/rules", `[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]`)},
	} {
		if err := patch(c.kind, c.text); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// What may be included. Paths are those of the webhooks that fail closed and open, for each kind of registration.
	paths := map[string][]string{mutating: {"/webhooks/2/rules", "/webhooks/3/rules"}, validating: {"/webhooks/0/rules", "/webhooks/1/rules"}}
	maps := ruleOf("", "configmaps")
	for rules, admitted := range map[string][]string{
		every:                                        nil,
		ruleOf("*", "*"):                             nil,
		ruleOf("", "*"):                              nil,
		ruleOf("apps", "*"):                          nil,
		ruleOf("apps", "*/*"):                        nil,
		ruleOf("apps", "*/status"):                   nil,
		ruleOf("*", "pods"):                          nil,
		ruleOf("", "secrets"):                        nil,
		ruleOf("", "secrets/*"):                      nil,
		maps + "," + ruleOf("", "secrets"):           nil,
		ruleOf("", `configmaps","secrets`):           nil,
		ruleOf(`apps","`, "secrets"):                 nil,
		ruleOf("rbac.authorization.k8s.io", "roles"): {validating},
		ruleOf(`apps","rbac.authorization.k8s.io`, "clusterrolebindings"):         {validating},
		ruleOf("admissionregistration.k8s.io", "validatingwebhookconfigurations"): {validating},
		ruleOf("admissionregistration.k8s.io", "mutatingadmissionpolicies"):       {validating},
		ruleOf("apiextensions.k8s.io", "customresourcedefinitions"):               {validating},
		ruleOf("apiregistration.k8s.io", "apiservices"):                           {validating},
		maps:                             {mutating, validating},
		ruleOf("", "pods/*"):             {mutating, validating},
		ruleOf("apps", "deployments"):    {mutating, validating},
		ruleOf("example.org", "secrets"): {mutating, validating},
	} {
		for kind, of := range paths {
			for _, path := range of {
				err := patch(kind, fmt.Sprintf(
					`[{"op":"add","path":%q,"value":%s},{"op":"add","path":%q,"value":[%s]}]`, strings.TrimSuffix(path, "/rules")+"/namespaceSelector", fmt.Sprintf(excluding, ""), path, rules))
				if want := slices.Contains(admitted, kind); want && err != nil || !want && (err == nil || !strings.Contains(err.Error(), denied)) {
					t.Errorf("%s%s: %s: admitted should be %t, got %v", kind, path, rules, want, err)
				}
			}
		}
	}
	m.isGuardedAtTheMost(t, patch)
	if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Patch(t.Context(), "gatehouse-registration", types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/spec"}]`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsForbidden(err) {
		t.Errorf("the account changes the guard: got %v", err)
	}
	for _, args := range [][]string{
		{"delete", validating, "gatehouse"},
		{"delete", mutating, "--all"},
		{"delete", "validatingadmissionpolicybinding", "gatehouse-registration"},
	} {
		if said, err := m.Kubectl(t.Context(), append(args, token, "--dry-run=server")...).CombinedOutput(); err == nil || !strings.Contains(string(said), "forbidden") {
			t.Errorf("%q: got %v: %s", args, err, said)
		}
	}
}
