package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// staticPlugins are the plugins of the API server that read objects from files, with the kinds of their configurations.
func staticPlugins() map[string]string {
	return map[string]string{
		"ValidatingAdmissionPolicy": "ValidatingAdmissionPolicyConfiguration", "MutatingAdmissionPolicy": "MutatingAdmissionPolicyConfiguration",
		"ValidatingAdmissionWebhook": "WebhookAdmissionConfiguration", "MutatingAdmissionWebhook": "WebhookAdmissionConfiguration",
	}
}

// readsManifests reports whether the API server of the tests reads policies and webhooks from files, as it does from 1.37 on.
func readsManifests(t *testing.T) bool {
	t.Helper()
	assets, err := cluster.Assets()
	must(t, err)
	return filepath.Base(assets) >= "1.37"
}

// staticFlags has an API server read objects from a directory for each plugin below dir.
func staticFlags(t *testing.T, dir string) []string {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for plugin, kind := range staticPlugins() {
		must(t, os.MkdirAll(filepath.Join(dir, plugin), 0o700))
		text += fmt.Sprintf("- name: %s\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: %s, staticManifestsDir: %s}\n", plugin, kind, filepath.Join(dir, plugin))
	}
	file := filepath.Join(dir, "admission.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return []string{"--admission-control-config-file=" + file}
}

// reloads returns how often a plugin has read its directory, with success or not.
func reloads(ctx context.Context, client rest.Interface, plugin, status string) (n int, err error) {
	text, err := client.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_manifest_admission_config_controller_automatic_reloads_total{") && strings.Contains(line, `"`+plugin+`"`) && strings.Contains(line, `status="`+status+`"`) {
			value, err := strconv.ParseFloat(strings.Fields(line)[1], 64)
			if err != nil {
				return 0, err
			}
			n += int(value)
		}
	}
	return n, nil
}

// TestStaticManifests has lint agree with the API server about what a directory of files may hold.
func TestStaticManifests(t *testing.T) {
	if !readsManifests(t) {
		return
	}
	dir := t.TempDir()
	c := cluster.New(t, cluster.Options{APIServerFlags: staticFlags(t, dir)})
	client := c.Client().Discovery().RESTClient()
	vap := func(name, spec string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: " + name + "}\nspec:\n" +
			"  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}\n" + spec + "\n"
	}
	const validation = "  validations: [{expression: \"!('denied' in object.data)\"}]"
	binding := func(name, policy, more string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: " + name + "}\nspec: {policyName: " + policy + more + "}\n"
	}
	webhook := func(name, webhookName, client, more string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: " + name + "}\nwebhooks:\n- name: " + webhookName +
			"\n  clientConfig: " + client + "\n" + more
	}
	const (
		url   = "{url: 'https://127.0.0.1:1/validate'}"
		rest  = "  sideEffects: None\n  admissionReviewVersions: [v1]\n"
		rules = "  rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]\n  namespaceSelector: {matchLabels: {none: none}}\n"
	)
	mapping := "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: m.static.k8s.io}\nspec:\n  reinvocationPolicy: Never\n" +
		"  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}\n" +
		"  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {\"a\": \"b\"}}}'}}]\n"
	const policies, webhooks, mutating = "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "MutatingAdmissionPolicy"
	baselines := map[string]string{
		policies: vap("base.static.k8s.io", validation) + "# %d\n", mutating: strings.Replace(mapping, "m.static", "base.static", 1) + "# %d\n",
		webhooks: webhook("base.static.k8s.io", "a.example.org", url, rest+rules) + "# %d\n",
	}
	round := 0
	for _, c := range []struct {
		name, plugin, text string
		accepted           bool
	}{
		{"a policy", policies, vap("a.static.k8s.io", validation), true},
		{"a policy with its binding", policies, vap("a.static.k8s.io", validation) + "---\n" + binding("a.static.k8s.io", "a.static.k8s.io", ", validationActions: [Deny]"), true},
		{"a list", policies, "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(vap("a.static.k8s.io", validation)), "\n", "\n  ") + "\n", true},
		{"a comment in the document", policies, "# a comment\n" + vap("a.static.k8s.io", validation), true},
		{"a comment as a document", policies, "# a comment\n---\n" + vap("a.static.k8s.io", validation), false},
		{"another name", policies, vap("a", validation), false},
		{"a name twice", policies, vap("a.static.k8s.io", validation) + "---\n" + vap("a.static.k8s.io", validation), false},
		{"params", policies, vap("a.static.k8s.io", "  paramKind: {apiVersion: v1, kind: ConfigMap}\n"+validation), false},
		{"params of a binding", policies, vap("a.static.k8s.io", validation) + "---\n" + binding("a.static.k8s.io", "a.static.k8s.io", ", validationActions: [Deny], paramRef: {name: a, parameterNotFoundAction: Deny}"), false},
		{"a binding alone", policies, binding("a.static.k8s.io", "a.static.k8s.io", ", validationActions: [Deny]"), false},
		{"a binding to a policy of the cluster", policies, vap("a.static.k8s.io", validation) + "---\n" + binding("a.static.k8s.io", "a", ", validationActions: [Deny]"), false},
		{"a binding without actions", policies, vap("a.static.k8s.io", validation) + "---\n" + binding("a.static.k8s.io", "a.static.k8s.io", ""), false},
		{"a broken expression", policies, vap("a.static.k8s.io", "  validations: [{expression: 'object.('}]"), false},
		{"no validations", policies, vap("a.static.k8s.io", "  failurePolicy: Fail"), false},
		{"an unknown field", policies, vap("a.static.k8s.io", validation+"\n  other: 1"), false},
		{"another version", policies, strings.Replace(vap("a.static.k8s.io", validation), "k8s.io/v1\n", "k8s.io/v1beta1\n", 1), false},
		{"another kind", policies, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a.static.k8s.io}\n", false},
		{"a mutating policy among others", policies, vap("a.static.k8s.io", validation) + "---\n" + mapping, false},
		{"no YAML", policies, "a: [", false},
		{"a mutating policy", mutating, mapping, true},
		{"a mutating policy that does not compile", mutating, strings.Replace(mapping, "Object.metadata{", "Object.metadata{{", 1), false},
		{"a mutating policy with params", mutating, strings.Replace(mapping, "spec:\n", "spec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n", 1), false},
		{"a webhook", webhooks, webhook("a.static.k8s.io", "a.example.org", url, rest+rules), true},
		{"a webhook without rules", webhooks, webhook("a.static.k8s.io", "a.example.org", url, rest), true},
		{"a webhook with a Service", webhooks, webhook("a.static.k8s.io", "a.example.org", "{service: {namespace: a, name: a}}", rest+rules), false},
		{"a webhook with nothing", webhooks, webhook("a.static.k8s.io", "a.example.org", "{}", rest+rules), false},
		{"a webhook with http", webhooks, webhook("a.static.k8s.io", "a.example.org", "{url: 'http://127.0.0.1:1/'}", rest+rules), false},
		{"a webhook with a short name", webhooks, webhook("a.static.k8s.io", "a", url, rest+rules), false},
		{"a webhook with side effects", webhooks, webhook("a.static.k8s.io", "a.example.org", url, "  sideEffects: Some\n  admissionReviewVersions: [v1]\n"), false},
		{"a webhook without versions", webhooks, webhook("a.static.k8s.io", "a.example.org", url, "  sideEffects: None\n"), false},
		{"a webhook with a timeout of a minute", webhooks, webhook("a.static.k8s.io", "a.example.org", url, rest+rules+"  timeoutSeconds: 60\n"), false},
		{"a webhook with contradicting rules", webhooks, webhook("a.static.k8s.io", "a.example.org", url, rest+"  rules: [{apiGroups: ['*', apps], apiVersions: [v1], operations: [CREATE], resources: [pods]}]\n"), false},
		{"a webhook with a broken condition", webhooks, webhook("a.static.k8s.io", "a.example.org", url, rest+rules+"  matchConditions: [{name: a, expression: 'object.('}]\n"), false},
		{"a webhook with a condition", webhooks, webhook("a.static.k8s.io", "a.example.org", url, rest+rules+"  matchConditions: [{name: a, expression: 'request.name != \"a\"'}]\n"), true},
	} {
		for i, text := range []string{fmt.Sprintf(baselines[c.plugin], round), c.text} {
			round++
			lintDir := t.TempDir()
			for _, to := range []string{filepath.Join(dir, "new.yaml"), filepath.Join(lintDir, "a.yaml")} {
				must(t, os.WriteFile(to, []byte(text), 0o600))
			}
			before := map[string]int{}
			for _, status := range []string{"success", "failure"} {
				n, err := reloads(t.Context(), client, c.plugin, status)
				must(t, err)
				before[status] = n
			}
			must(t, os.Rename(filepath.Join(dir, "new.yaml"), filepath.Join(dir, c.plugin, "a.yaml")))
			isAccepted := false
			support.Eventually(t, "the API server reads the file", func() error {
				for _, status := range []string{"failure", "success"} {
					n, err := reloads(t.Context(), client, c.plugin, status)
					if err != nil {
						return err
					}
					if n > before[status] {
						isAccepted = status == "success"
						return nil
					}
				}
				return fmt.Errorf("not yet: %s", c.name)
			})
			code, out, _ := program(t, "lint", "--profile", "static", lintDir)
			want := c.accepted || i == 0
			if isAccepted != want || (code == 0) != want {
				t.Errorf("%s: the API server accepts it: %v, lint says %d, want %v\n%s\n%s", c.name, isAccepted, code, want, out, text)
			}
			if code != 0 && !regexp.MustCompile(`\[static-[a-z]+\]`).MatchString(out) {
				t.Errorf("%s: %s", c.name, out)
			}
		}
	}
}

// TestStaticRegistration has an API server read Gatehouse's registration from a file: no user can delete it, and whoever owns the hosts can.
func TestStaticRegistration(t *testing.T) {
	if !readsManifests(t) {
		return
	}
	dir := t.TempDir()
	c := cluster.New(t, cluster.Options{APIServerFlags: staticFlags(t, dir)})
	root, err := support.Root()
	must(t, err)
	config := filepath.Join(root, "manifests/examples/quickstart/config")
	certificate, key, err := c.Serve("127.0.0.1")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600))
	server, err := gatehouse.Start(t.Context(), filepath.Join(dir, "log"), "--config", config, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
		"--drain-delay", "0s", "--tls-cert", filepath.Join(dir, "tls.crt"), "--tls-key", filepath.Join(dir, "tls.key"))
	must(t, err)
	t.Cleanup(server.Kill)
	must(t, c.CreateNamespace(t.Context(), "shop", nil))
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"shop"},"spec":{"containers":[{"name":"a","image":"other.example/a"}]}}`
	create := func() string {
		text, _ := kubectl(t, c, pod, "create", "--dry-run=server", "-f", "-")
		return text
	}
	isRefused := func(want bool) func() error {
		return func() error {
			if text := create(); strings.Contains(text, "images must come from registry.example") != want {
				return fmt.Errorf("got %s", text)
			}
			return nil
		}
	}
	must(t, isRefused(false)())
	text, err := gatehouse.Run(t.Context(), "manifests", "--url", "https://"+server.Reviews.String(), "--ca-file", c.CAFile(), "--config", config, "--static", "validating")
	must(t, err)
	file := filepath.Join(dir, "ValidatingAdmissionWebhook", "gatehouse.yaml")
	must(t, os.WriteFile(filepath.Join(dir, "new.yaml"), []byte(text), 0o600))
	must(t, os.Rename(filepath.Join(dir, "new.yaml"), file))
	if code, out, _ := program(t, "lint", "--profile", "static", filepath.Dir(file)); code != 0 {
		t.Errorf("lint: %s", out)
	}
	support.Eventually(t, "Gatehouse is asked", isRefused(true))
	if text, _ := kubectl(t, c, "", "delete", "validatingwebhookconfigurations", "--all"); !strings.Contains(text, "No resources found") {
		t.Errorf("kubectl delete says %s", text)
	}
	must(t, isRefused(true)())
	if text, err := kubectl(t, c, text, "create", "-f", "-"); err == nil || !strings.Contains(text, ".static.k8s.io") {
		t.Errorf("the API takes the name: %s", text)
	}
	must(t, os.Rename(file, filepath.Join(dir, "away.yaml")))
	support.Eventually(t, "Gatehouse is not asked any more", isRefused(false))
}
