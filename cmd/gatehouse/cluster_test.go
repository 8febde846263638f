package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/debug"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/test/support/portforward"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// A policy that requires labels of ConfigMaps, and what it admits and refuses.
const (
	teamPolicy = `{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: team}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]},
  validations: [{expression: has(object.metadata.labels)}], validationActions: [Deny]}}`
	brokenException = `{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyException, metadata: {namespace: gatehouse-system, name: broken}, spec: {
  reason: test, policies: [{name: team}], match: {matchConditions: [{name: c, expression: objekt.x}]}}}`
	labelledMap   = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: a, labels: {team: blue}}}`
	unlabelledMap = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: a}}`
)

// TestUnreadPolicies: while policies of the cluster cannot be read or have errors, nothing is certainly admitted.
func TestUnreadPolicies(t *testing.T) {
	t.Parallel()
	broken := strings.NewReplacer("name: team", "name: broken", "object.", "objekt.", "configmaps", "secrets").Replace(teamPolicy)
	for name, c := range map[string]struct {
		policies         []string
		forbidden, input string
		code, explained  int
		says             string
	}{
		"all read":                                  {[]string{teamPolicy}, "", labelledMap, cli.ExitYes, cli.ExitYes, `"verdict":"admitted"`},
		"no right to a kind":                        {[]string{teamPolicy}, "policyexceptions", labelledMap, cli.ExitUnknown, cli.ExitUnknown, `"error":"missing right: list policyexceptions.gatehouse.dev (hint: bind the ClusterRole gatehouse-auditor)"`},
		"no right to policies":                      {[]string{teamPolicy}, "admissionpolicies", labelledMap, cli.ExitUnknown, cli.ExitUnknown, `"verdict":"cannot-decide"`},
		"no right, and a violation":                 {[]string{teamPolicy}, "sidecarprofiles", unlabelledMap, cli.ExitNo, cli.ExitUnknown, `"verdict":"refused"`},
		"a policy with errors":                      {[]string{teamPolicy, broken}, "", labelledMap, cli.ExitUnknown, cli.ExitUnknown, "AdmissionPolicy/broken has errors, so that nothing can be decided by it"},
		"an exception with errors":                  {[]string{teamPolicy, brokenException}, "", labelledMap, cli.ExitYes, cli.ExitYes, "warning: cluster: PolicyException/gatehouse-system/broken: it has errors, so that it exempts nothing, in the servers too"},
		"an exception with errors, and a violation": {[]string{teamPolicy, brokenException}, "", unlabelledMap, cli.ExitNo, cli.ExitYes, `"verdict":"refused"`},
		"no right to a namespace":                   {[]string{strings.Replace(teamPolicy, "matchConstraints: {", "matchConstraints: {namespaceSelector: {matchLabels: {a: b}}, ", 1)}, "namespaces", labelledMap, cli.ExitUnknown, cli.ExitUnknown, "missing right: get namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := testAPI(t, c.policies...)
			s := &servers{documents: map[string]string{"gatehouse-0": ""}, noRight: c.forbidden}
			kubeconfig := s.start(t, api).Kubeconfig(t)
			for command, want := range map[string]int{"check": c.code, "explain": c.explained} {
				got := clitest.Run(t.Context(), c.input, []string{command, "--kubeconfig", kubeconfig, "--allow-empty", "-o", "json"}, commands()...)
				if said := got.Out + got.Err; got.Code != want || !strings.Contains(said, c.says) {
					t.Errorf("%s ends with %d, want %d:\n%s", command, got.Code, want, said)
				}
			}
		})
	}
}

// resource is one that the API server of a test serves.
func resource(of schema.GroupVersion, plural, kind string, namespaced bool) fakeapi.Resource {
	return fakeapi.Resource{GroupVersionResource: of.WithResource(plural), Kind: kind, Namespaced: namespaced}
}

// testAPI returns an API server with these objects.
func testAPI(t *testing.T, objects ...string) *fakeapi.Server {
	t.Helper()
	registration, v1 := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}, corev1.SchemeGroupVersion
	api := fakeapi.New(
		resource(v1alpha1.GroupVersion, "admissionpolicies", "AdmissionPolicy", false), resource(v1alpha1.GroupVersion, "sidecarprofiles", "SidecarProfile", false),
		resource(v1alpha1.GroupVersion, "policyexceptions", "PolicyException", true),
		resource(v1alpha1.GroupVersion, "policybaselines", "PolicyBaseline", true),
		resource(registration, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false), resource(registration, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false),
		resource(registration, "mutatingadmissionpolicies", "MutatingAdmissionPolicy", false), resource(registration, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", false),
		resource(registration, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false), resource(registration, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false),
		resource(v1, "services", "Service", true), resource(v1, "pods", "Pod", true), resource(v1, "configmaps", "ConfigMap", true), resource(v1, "secrets", "Secret", true), resource(v1, "namespaces", "Namespace", false),
	)
	for _, text := range objects {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		api.Put(object)
	}
	return api
}

// servers are pods of Gatehouse in a cluster, in a namespace and with labels of their own.
type servers struct {
	// documents are those of their own directories, by the name of the pod.
	documents map[string]string
	// webhook is the clientConfig of the registration, "" for that of their Service.
	webhook string
	// noForward is a pod whose ports must not be forwarded, and noRight a resource that must not be read.
	noForward, noRight string
}

// start returns the API server with the pods.
func (s *servers) start(t *testing.T, api *fakeapi.Server) *portforward.APIServer {
	t.Helper()
	put := func(format string, args ...any) {
		var object map[string]any
		if err := yaml.Unmarshal(fmt.Appendf(nil, format, args...), &object); err != nil {
			t.Fatal(err)
		}
		api.Put(object)
	}
	if s.webhook == "" {
		s.webhook = "{service: {namespace: hall, name: mine}}"
	}
	put(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: mine}, webhooks: [
  {name: other.example.com, clientConfig: {url: "https://other.example"}}, {name: validate.gatehouse.dev, clientConfig: %s}]}`, s.webhook)
	put(`{apiVersion: v1, kind: Service, metadata: {namespace: hall, name: mine}, spec: {selector: {app: mine}}}`)
	put(`{apiVersion: v1, kind: Pod, metadata: {namespace: hall, name: another}, status: {phase: Running}}`)
	pods := map[string]http.Handler{}
	for name, text := range s.documents {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "own.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		own, found := config.InspectBeside(dir)
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		pods[name] = debug.Handler(debug.Options{
			Level: debug.NewLevel(new(slog.LevelVar), slog.New(slog.DiscardHandler)), Configuration: func() *config.Config { return own.Own() },
		})
		put(`{apiVersion: v1, kind: Pod, metadata: {namespace: hall, name: %s, labels: {app: mine}}, status: {phase: Running},
  spec: {containers: [{name: a, ports: [{name: ops, containerPort: 8081}]}]}}`, name)
	}
	api.Intercept = func(r *fakeapi.Request) (any, error) {
		if s.noRight != "" && r.Resource == s.noRight {
			group, where := "", ` in the namespace "hall"`
			if strings.HasSuffix(r.Resource, "configurations") {
				group, where = "admissionregistration.k8s.io", " at the cluster scope"
			}
			return nil, apierrors.NewForbidden(schema.GroupResource{Resource: r.Resource}, r.Name, fmt.Errorf("User %q cannot %s resource %q in API group %q%s", "joe", r.Verb, r.Resource, group, where))
		}
		return nil, nil
	}
	server := portforward.NewAPIServer(t, pods)
	server.Forbidden = s.noForward
	server.Mux.Handle("/", fakeapi.Handler(api))
	return server
}

// TestWhatIsActive: all commands about a cluster decide by the custom resources, by what the servers have in their own directory, and
// by the cluster's ValidatingAdmissionPolicies. The servers are those that the API server asks. What cannot be read leaves nothing
// certainly admitted.
func TestWhatIsActive(t *testing.T) {
	t.Parallel()
	native := strings.NewReplacer("gatehouse.dev/v1alpha1", "admissionregistration.k8s.io/v1", "AdmissionPolicy", "ValidatingAdmissionPolicy", "team", "native", ", validationActions: [Deny]", "").Replace(teamPolicy)
	const bound = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: native}, spec: {policyName: native, validationActions: [Deny]}}`
	other := strings.ReplaceAll(teamPolicy, "has(object.metadata.labels)", "'!has(object.metadata.labels)'")
	same := map[string]string{"gatehouse-0": teamPolicy, "gatehouse-1": teamPolicy}
	none := map[string]string{"gatehouse-0": ""}
	const unconsidered = "the documents of the servers' own --config are not considered: "
	for name, c := range map[string]struct {
		servers
		objects []string
		input   string
		args    []string
		code    int
		// says is in the output, and shown on the page of the console.
		says, shown string
	}{
		"their policy refuses":         {servers: servers{documents: same}, input: unlabelledMap, code: cli.ExitNo, says: `AdmissionPolicy","policy":"team"`, shown: "team"},
		"their policy admits":          {servers: servers{documents: same}, input: labelledMap, code: cli.ExitYes},
		"it goes before a resource":    {servers: servers{documents: same}, objects: []string{other}, input: unlabelledMap, code: cli.ExitNo},
		"they differ":                  {servers: servers{documents: map[string]string{"gatehouse-0": teamPolicy, "gatehouse-1": other}}, input: labelledMap, code: cli.ExitUnknown, says: unconsidered + "gatehouse-0 and gatehouse-1 have different documents"},
		"no right to forward":          {servers: servers{documents: same, noForward: "gatehouse-0"}, input: labelledMap, code: cli.ExitUnknown, says: "the right to create pods/portforward in namespace gatehouse-system is missing (hint: bind the ClusterRole gatehouse-console in this namespace)"},
		"no right to pods":             {servers: servers{documents: same, noRight: "pods"}, input: labelledMap, code: cli.ExitUnknown, says: "the right to list pods in namespace hall is missing (hint: bind the ClusterRole gatehouse-console in this namespace)"},
		"no right to the Service":      {servers: servers{documents: same, noRight: "services"}, input: labelledMap, code: cli.ExitUnknown, says: "the right to get services in namespace hall is missing (hint: bind the ClusterRole gatehouse-console in this namespace)"},
		"no right to registrations":    {servers: servers{documents: same, noRight: "mutatingwebhookconfigurations"}, input: labelledMap, code: cli.ExitUnknown, says: "the right to list mutatingwebhookconfigurations.admissionregistration.k8s.io is missing (hint: bind the ClusterRole gatehouse-auditor)"},
		"no server":                    {input: labelledMap, code: cli.ExitUnknown, says: "no pod with the labels app=mine in the namespace hall runs (hint: --partial decides without them)", shown: "no pod with the labels app=mine in the namespace hall runs"},
		"no server, and it is partial": {input: unlabelledMap, args: []string{"--partial"}, code: cli.ExitYes, says: "note: " + unconsidered + "no pod ", shown: "no pod with the labels"},
		"a server elsewhere":           {servers: servers{webhook: `{url: "https://gatehouse.example"}`}, input: labelledMap, code: cli.ExitUnknown, says: "the webhook validate.gatehouse.dev calls a server outside of the cluster"},
		"a policy of the cluster":      {servers: servers{documents: none}, objects: []string{native, bound}, input: unlabelledMap, code: cli.ExitNo, says: `"ValidatingAdmissionPolicy","policy":"native"`, shown: "native"},
		"a policy of the cluster with params": {
			servers: servers{documents: none}, input: unlabelledMap, code: cli.ExitNo, shown: "native",
			objects: []string{strings.Replace(native, "spec: {", "spec: {paramKind: {apiVersion: v1, kind: Secret}, ", 1), strings.Replace(bound, "validationActions", "paramRef: {name: p, namespace: default, parameterNotFoundAction: Deny}, validationActions", 1)},
			says:    `spec.paramRef: there is no Secret "p" in namespace "default"`,
		},
		"a broken exception": {servers: servers{documents: none}, objects: []string{teamPolicy, brokenException}, input: labelledMap, code: cli.ExitYes, says: "PolicyException/gatehouse-system/broken: it has errors", shown: "has errors"},
		"no right to these":  {servers: servers{documents: none, noRight: "validatingadmissionpolicies"}, objects: []string{native, bound}, input: labelledMap, code: cli.ExitUnknown, says: "missing right: list validatingadmissionpolicies.admissionregistration.k8s.io", shown: "missing right: list validatingadmissionpolicies"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harmless := strings.NewReplacer("name: team", "name: harmless", "configmaps", "secrets").Replace(teamPolicy)
			api := testAPI(t, append([]string{harmless, c.input, `{apiVersion: v1, kind: Namespace, metadata: {name: default}}`}, c.objects...)...)
			kubeconfig := c.start(t, api).Kubeconfig(t)
			for command, output := range map[string]string{"check": "json", "explain": "json", "audit": "ndjson"} {
				want, says := c.code, c.says
				if command == "explain" && want == cli.ExitNo {
					want = cli.ExitYes // it says what is the case, and judges nothing
				}
				input := c.input
				if command == "audit" {
					input = ""
				}
				got := clitest.Run(t.Context(), input, append([]string{command, "--kubeconfig", kubeconfig, "-o", output}, c.args...), commands()...)
				if said := got.Out + got.Err; got.Code != want || !strings.Contains(said, says) {
					t.Errorf("%s ends with %d, want %d and %q:\n%s", command, got.Code, want, says, said)
				} else if n := strings.Count(said, "policies and webhooks that API servers read from files"); want != cli.ExitUnknown && n != 1 {
					t.Errorf("%s says %d times that files of API servers are not considered:\n%s", command, n, said)
				}
			}
			if c.shown == "" {
				return
			}
			if page := consolePage(t, append([]string{"--kubeconfig", kubeconfig}, c.args...)); !strings.Contains(page, c.shown) || !strings.Contains(page, "without policies in files of API servers") {
				t.Errorf("the console does not show %q:\n%s", c.shown, page)
			}
		})
	}
}

// TestCompiledPoliciesOfACluster: what gatehouse compile has made of a policy that decides itself is not audited a second time, and audit says
// what of it must be compiled again.
func TestCompiledPoliciesOfACluster(t *testing.T) {
	t.Parallel()
	source, dir := strings.Replace(teamPolicy, "validationActions", "existingViolations: Deny, validationActions", 1), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "team.yaml"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	compiled := clitest.Run(t.Context(), "", []string{"compile", "--config", dir, "-o", "yaml"}, commands()...).Out
	const ours, theirs = `AdmissionPolicy","policy":"team"`, `ValidatingAdmissionPolicy","policy":"team.gatehouse.dev"`
	for name, c := range map[string]struct {
		sources   []string
		compiled  string
		by, warns string
	}{
		"up to date":           {[]string{source}, compiled, ours, ""},
		"out of date":          {[]string{source}, strings.ReplaceAll(compiled, "- expression: has(object.metadata.labels)", "- expression: 'true'"), ours, "warning: AdmissionPolicy/team: is not what gatehouse compile makes now: ValidatingAdmissionPolicy/team.gatehouse.dev (hint: "},
		"without its source":   {nil, compiled, theirs, ""},
		"an exception is over": {nil, strings.ReplaceAll(compiled, "  annotations:\n", "  annotations:\n    gatehouse.dev/exceptions-expire-at: \"2020-01-01T00:00:00Z\"\n"), theirs, "an exception in it ended at 2020-01-01T00:00:00Z (hint: compile AdmissionPolicy/team again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := append([]string{unlabelledMap, `{apiVersion: v1, kind: Namespace, metadata: {name: default}}`}, c.sources...)
			s := &servers{documents: map[string]string{"gatehouse-0": ""}}
			kubeconfig := s.start(t, testAPI(t, append(objects, strings.Split(c.compiled, "---\n")...)...)).Kubeconfig(t)
			got := clitest.Run(t.Context(), "", []string{"audit", "--kubeconfig", kubeconfig, "-o", "ndjson"}, commands()...)
			if got.Code != cli.ExitNo || strings.Count(got.Out, `"policyKind":`) != 1 || !strings.Contains(got.Out, c.by) {
				t.Errorf("audit ends with %d and says %s%s", got.Code, got.Out, got.Err)
			}
			if warned := strings.Contains(got.Err, "warning:"); warned != (c.warns != "") || !strings.Contains(got.Err, c.warns) {
				t.Errorf("it warns %q, want %q", got.Err, c.warns)
			}
		})
	}
}

// TestMutatingPoliciesOfACluster: the cluster's own mutating policies count, and what depends on their order cannot be decided.
func TestMutatingPoliciesOfACluster(t *testing.T) {
	t.Parallel()
	policy := func(name, value string) []string {
		return []string{
			`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {name: ` + name + `}, spec: {reinvocationPolicy: Never,
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]},
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"team": "` + value + `"}}}'}}]}}`,
			`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: ` + name + `}, spec: {policyName: ` + name + `}}`,
		}
	}
	both, files := append(policy("blue", "blue"), policy("green", "green")...), t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "a.yaml"), []byte(strings.Join(policy("green.static.k8s.io", "green"), "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		objects []string
		args    []string
		code    int
		says    string
	}{
		"they change it":         {policy("blue", "blue"), []string{"check"}, cli.ExitYes, "1 admitted"},
		"the order matters":      {both, []string{"check"}, cli.ExitUnknown, `MutatingAdmissionPolicy "blue" and "green" give different results in different orders at /metadata/labels/team`},
		"the order of files":     {policy("blue", "blue"), []string{"check", "--with", files}, cli.ExitUnknown, `MutatingAdmissionPolicy "blue" and "green.static.k8s.io" give different results in different orders`},
		"what they make of it":   {policy("blue", "blue"), []string{"mutate"}, cli.ExitYes, "team: blue"},
		"what depends on orders": {both, []string{"mutate"}, cli.ExitUnknown, "it depends on the order, which the API server does not define"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := testAPI(t, append([]string{teamPolicy, `{apiVersion: v1, kind: Namespace, metadata: {name: default}}`}, c.objects...)...)
			running := servers{documents: map[string]string{"gatehouse-0": ""}}
			kubeconfig := running.start(t, api).Kubeconfig(t)
			got := clitest.Run(t.Context(), unlabelledMap, append(c.args, "--kubeconfig", kubeconfig), commands()...)
			if said := got.Out + got.Err; got.Code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("%q ends with %d, want %d and %q:\n%s", c.args, got.Code, c.code, c.says, said)
			}
		})
	}
}

// scopedToken is a configuration with a scope of tokens.
const scopedToken = `apiVersion: gatehouse.dev/v1alpha1
kind: AuthenticationConfiguration
scopes: [{name: deployer, rules: [{apiGroups: [apps], resources: [deployments], verbs: [get]}]}]`

// TestLintCluster lints what is active in a cluster: resources, and what the servers have in their own directories.
func TestLintCluster(t *testing.T) {
	t.Parallel()
	odd := strings.Replace(teamPolicy, "has(object.metadata.labels)", "object.metadata.lables.size() > 0", 1)
	const warning = `cluster: warning: AdmissionPolicy/team: spec.validations[0].expression: for v1 ConfigMap: there is no field "lables"`
	broken := strings.NewReplacer("name: team", "name: broken", "object.", "objekt.").Replace(teamPolicy)
	wrong, fine, scoped := t.TempDir(), t.TempDir(), t.TempDir()
	for dir, text := range map[string]string{wrong: broken, fine: teamPolicy, scoped: scopedToken} {
		if err := os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		objects, args []string
		forbidden     string
		servers       map[string]string
		code          int
		says          string
	}{
		"nothing to say":            {objects: []string{teamPolicy}, says: "0 errors, 0 warnings in what is active in cluster context t"},
		"a warning":                 {objects: []string{odd}, says: warning},
		"for code hosting":          {objects: []string{odd}, args: []string{"-o", "github"}, says: "::warning file=cluster,line=1,title=type::AdmissionPolicy/team: "},
		"an error":                  {objects: []string{teamPolicy, broken}, code: cli.ExitNo, says: "cluster: error: AdmissionPolicy/broken: spec.validations[0].expression: "},
		"of a server":               {servers: map[string]string{"gatehouse-0": odd}, says: `there is no field "lables"`},
		"scopes of tokens":          {args: []string{"--config", scoped, "--fail-on", "warning"}, says: ": note: AuthenticationConfiguration: scopes: tokens with a scope are rejected as long as the API server is not known to enforce scopes: "},
		"no right":                  {objects: []string{teamPolicy}, forbidden: "policyexceptions", code: cli.ExitUnknown, says: "missing right: list policyexceptions.gatehouse.dev"},
		"no server":                 {objects: []string{teamPolicy}, servers: map[string]string{}, code: cli.ExitUnknown, says: "(hint: --partial decides without them)"},
		"nothing is active":         {code: cli.ExitUnknown, says: "no policy and no profile is active in the cluster"},
		"a directory":               {objects: []string{odd}, args: []string{"--config", fine}, says: "0 errors, 0 warnings in "},
		"a directory beside it":     {objects: []string{strings.Replace(odd, "name: team", "name: odd", 1)}, args: []string{"--config", fine, "--with-cluster"}, says: strings.Replace(warning, "/team", "/odd", 1)},
		"a directory with an error": {objects: []string{teamPolicy}, args: []string{"--config", wrong}, code: cli.ExitNo, says: "p.yaml:"},
		"flags without a cluster":   {args: []string{"--config", fine, "--kubeconfig", "", "--partial"}, code: cli.ExitUnknown, says: "--with-cluster, --with and --partial need a cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.servers == nil {
				c.servers = map[string]string{"gatehouse-0": ""}
			}
			s := &servers{documents: c.servers, noRight: c.forbidden}
			kubeconfig := s.start(t, testAPI(t, c.objects...)).Kubeconfig(t)
			got := clitest.Run(t.Context(), "", append([]string{"lint", "--kubeconfig", kubeconfig}, c.args...), commands()...)
			if said := got.Out + got.Err; got.Code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("lint ends with %d, want %d and %q:\n%s", got.Code, c.code, c.says, said)
			}
		})
	}
}

// consolePage returns the page of the console about policies.
func consolePage(t *testing.T, args []string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines, said := io.Pipe()
	go func() {
		run(ctx, slices.Concat([]string{"console", "--no-browser", "--port", "0"}, args), cli.Streams{In: strings.NewReader(""), Out: said, Err: said})
		_ = said.Close()
	}()
	url := ""
	scanner := bufio.NewScanner(lines)
	for url == "" && scanner.Scan() {
		_, url, _ = strings.Cut(scanner.Text(), "The console is at ")
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	var cookies []*http.Cookie
	get := func(url string) string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range cookies {
			request.AddCookie(one)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		cookies = response.Cookies()
		return string(text)
	}
	_, rest, _ := strings.Cut(get(url), `<a href="`) // the page sets a cookie, and leads to the first one
	base, _, _ := strings.Cut(rest, `"`)
	host, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	return get("http://" + host + strings.TrimSuffix(base, "/") + "/policies")
}
