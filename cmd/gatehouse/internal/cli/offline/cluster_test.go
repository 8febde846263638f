package offline

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/debug"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replicas/replicastest"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
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
	labelledMap   = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {team: blue}}}`
	unlabelledMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`
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
		"no right to a kind":                        {[]string{teamPolicy}, "policyexceptions", labelledMap, cli.ExitUnknown, cli.ExitUnknown, `"error":"cannot read what is active in the cluster: missing right: list policyexceptions.gatehouse.dev (hint: bind the ClusterRole gatehouse-auditor)"`},
		"no right to policies":                      {[]string{teamPolicy}, "admissionpolicies", labelledMap, cli.ExitUnknown, cli.ExitUnknown, `"verdict":"cannot-decide"`},
		"no right, and a violation":                 {[]string{teamPolicy}, "sidecarprofiles", unlabelledMap, cli.ExitNo, cli.ExitUnknown, `"verdict":"refused"`},
		"a policy with errors":                      {[]string{teamPolicy, broken}, "", labelledMap, cli.ExitUnknown, cli.ExitUnknown, "AdmissionPolicy/broken has errors, so that nothing can be decided by it"},
		"an exception with errors":                  {[]string{teamPolicy, brokenException}, "", labelledMap, cli.ExitYes, cli.ExitYes, "warning: cluster: PolicyException/gatehouse-system/broken: it has errors, so that it exempts nothing, in the servers too"},
		"an exception with errors, and a violation": {[]string{teamPolicy, brokenException}, "", unlabelledMap, cli.ExitNo, cli.ExitYes, `"verdict":"refused"`},
		"no right to a namespace":                   {[]string{strings.Replace(teamPolicy, "matchConstraints: {", "matchConstraints: {namespaceSelector: {matchLabels: {a: b}}, ", 1)}, "namespaces", labelledMap, cli.ExitUnknown, cli.ExitUnknown, "missing right: get namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resource := func(plural, kind string, namespaced bool) fakeapi.Resource {
				return fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource(plural), Kind: kind, Namespaced: namespaced}
			}
			api := fakeapi.New(
				resource("admissionpolicies", "AdmissionPolicy", false), resource("sidecarprofiles", "SidecarProfile", false), resource("policyexceptions", "PolicyException", true),
			)
			for _, text := range c.policies {
				var object map[string]any
				if err := yaml.Unmarshal([]byte(text), &object); err != nil {
					t.Fatal(err)
				}
				api.Put(object)
			}
			api.Intercept = func(r *fakeapi.Request) (any, error) {
				if r.Resource == c.forbidden && c.forbidden != "" {
					return nil, apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource(r.Resource).GroupResource(), "", nil)
				}
				return nil, nil
			}
			kubeconfig := withServers(t, api, map[string]string{"gatehouse-0": ""}).Kubeconfig(t)
			for command, want := range map[string]int{"check": c.code, "explain": c.explained} {
				code, said := gatehouse(t, c.input, command, "--kubeconfig", kubeconfig, "--allow-empty", "-o", "json")
				if code != want || !strings.Contains(said, c.says) {
					t.Errorf("%s ends with %d, want %d:\n%s", command, code, want, said)
				}
			}
		})
	}
}

// withServers returns the API server with pods of Gatehouse, whose own directories have these documents.
func withServers(t *testing.T, api *fakeapi.Server, documents map[string]string) *replicastest.APIServer {
	t.Helper()
	pods := map[string]http.Handler{}
	for name, text := range documents {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "own.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		own, found := config.InspectBeside(dir)
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		pods[name] = debug.Handler(debug.Options{
			Level: debug.NewLevel(new(slog.LevelVar), slog.New(slog.DiscardHandler)), Configuration: func() *config.Config { return debug.Deciding(own) },
		})
	}
	server := replicastest.NewAPIServer(t, pods)
	server.Mux.Handle("/", clitest.Handler(api))
	return server
}

// TestServersOwnDocuments: with a cluster, what the servers have in their own directory decides too, and so do the cluster's
// ValidatingAdmissionPolicies. What cannot be read leaves nothing certainly admitted.
func TestServersOwnDocuments(t *testing.T) {
	t.Parallel()
	const native = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: native}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]},
  validations: [{expression: has(object.metadata.labels)}]}}`
	const bound = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: native}, spec: {policyName: native, validationActions: [Deny]}}`
	other := strings.ReplaceAll(teamPolicy, "has(object.metadata.labels)", "'!has(object.metadata.labels)'")
	same := map[string]string{"gatehouse-0": teamPolicy, "gatehouse-1": teamPolicy}
	for name, c := range map[string]struct {
		objects   []string
		servers   map[string]string
		forbidden string
		input     string
		args      []string
		code      int
		says      string
	}{
		"their policy refuses":           {servers: same, input: unlabelledMap, code: cli.ExitNo, says: `"kind":"AdmissionPolicy","policy":"team"`},
		"their policy admits":            {servers: same, input: labelledMap, code: cli.ExitYes, says: `"verdict":"admitted"`},
		"it goes before a resource":      {objects: []string{other}, servers: same, input: unlabelledMap, code: cli.ExitNo, says: `"verdict":"refused"`},
		"they differ":                    {servers: map[string]string{"gatehouse-0": teamPolicy, "gatehouse-1": other}, input: labelledMap, args: []string{"--allow-empty"}, code: cli.ExitUnknown, says: "the documents of the servers' own --config are not considered: gatehouse-0 and gatehouse-1 have different documents"},
		"no right":                       {servers: same, forbidden: "gatehouse-0", input: labelledMap, args: []string{"--allow-empty"}, code: cli.ExitUnknown, says: `(hint: --partial decides without them)`},
		"no server":                      {input: labelledMap, args: []string{"--allow-empty"}, code: cli.ExitUnknown, says: "no pod with the labels "},
		"no server, and it is partial":   {input: unlabelledMap, args: []string{"--allow-empty", "--partial"}, code: cli.ExitYes, says: "note: the documents of the servers' own --config are not considered: no pod "},
		"a policy of the cluster":        {objects: []string{native, bound}, servers: map[string]string{"gatehouse-0": ""}, input: unlabelledMap, code: cli.ExitNo, says: `"kind":"ValidatingAdmissionPolicy","policy":"native"`},
		"a policy of the cluster is off": {objects: []string{native, bound}, servers: map[string]string{"gatehouse-0": ""}, input: unlabelledMap, args: []string{"--native=false", "--allow-empty"}, code: cli.ExitYes, says: `"verdict":"admitted"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v1 := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
			api := fakeapi.New(
				fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource("admissionpolicies"), Kind: "AdmissionPolicy"},
				fakeapi.Resource{GroupVersionResource: v1.WithResource("validatingadmissionpolicies"), Kind: "ValidatingAdmissionPolicy"},
				fakeapi.Resource{GroupVersionResource: v1.WithResource("validatingadmissionpolicybindings"), Kind: "ValidatingAdmissionPolicyBinding"},
			)
			for _, text := range c.objects {
				var object map[string]any
				if err := yaml.Unmarshal([]byte(text), &object); err != nil {
					t.Fatal(err)
				}
				api.Put(object)
			}
			server := withServers(t, api, c.servers)
			server.Forbidden = c.forbidden
			for _, command := range []string{"check", "explain"} {
				want := c.code
				if command == "explain" && want == cli.ExitNo {
					want = cli.ExitYes
				}
				code, said := gatehouse(t, c.input, append([]string{command, "--kubeconfig", server.Kubeconfig(t), "-o", "json"}, c.args...)...)
				says := c.says
				if command == "explain" && strings.Contains(says, "verdict") {
					says = "" // without a policy, it has nothing to explain
				}
				if code != want || !strings.Contains(said, says) {
					t.Errorf("%s ends with %d, want %d and %q:\n%s", command, code, want, says, said)
				}
			}
		})
	}
}

// TestLintCluster lints what is active in a cluster: resources, and what the servers have in their own directories.
func TestLintCluster(t *testing.T) {
	t.Parallel()
	odd := strings.Replace(teamPolicy, "has(object.metadata.labels)", "object.metadata.lables.size() > 0", 1)
	const warning = `cluster: warning: AdmissionPolicy/team: spec.validations[0].expression: for v1 ConfigMap: there is no field "lables"`
	broken := strings.NewReplacer("name: team", "name: broken", "object.", "objekt.").Replace(teamPolicy)
	wrong, fine := t.TempDir(), t.TempDir()
	for dir, text := range map[string]string{wrong: broken, fine: teamPolicy} {
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
		"nothing to say":            {objects: []string{teamPolicy}, says: "0 errors, 0 warnings in what is active in cluster context t, with its ValidatingAdmissionPolicies"},
		"a warning":                 {objects: []string{odd}, says: warning},
		"for code hosting":          {objects: []string{odd}, args: []string{"-o", "github"}, says: "::warning file=cluster,title=type::AdmissionPolicy/team: "},
		"an error":                  {objects: []string{teamPolicy, broken}, code: cli.ExitNo, says: "cluster: error: AdmissionPolicy/broken: spec.validations[0].expression: "},
		"of a server":               {servers: map[string]string{"gatehouse-0": odd}, says: `there is no field "lables"`},
		"no right":                  {objects: []string{teamPolicy}, forbidden: "policyexceptions", code: cli.ExitUnknown, says: "missing right: list policyexceptions.gatehouse.dev"},
		"no server":                 {objects: []string{teamPolicy}, servers: map[string]string{}, code: cli.ExitUnknown, says: "(hint: --partial decides without them)"},
		"nothing is active":         {code: cli.ExitUnknown, says: "0 policies and 0 profiles are active in the cluster"},
		"a directory":               {objects: []string{odd}, args: []string{"--config", fine}, says: "0 errors, 0 warnings in "},
		"a directory beside it":     {objects: []string{strings.Replace(odd, "name: team", "name: odd", 1)}, args: []string{"--config", fine, "--with-cluster"}, says: strings.Replace(warning, "/team", "/odd", 1)},
		"a directory with an error": {objects: []string{teamPolicy}, args: []string{"--config", wrong}, code: cli.ExitNo, says: "p.yaml:"},
		"flags without a cluster":   {args: []string{"--config", fine, "--kubeconfig", "", "--partial"}, code: cli.ExitUnknown, says: "--partial is for a cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resource := func(plural, kind string, namespaced bool) fakeapi.Resource {
				return fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource(plural), Kind: kind, Namespaced: namespaced}
			}
			api := fakeapi.New(resource("admissionpolicies", "AdmissionPolicy", false), resource("policyexceptions", "PolicyException", true))
			for _, text := range c.objects {
				var object map[string]any
				if err := yaml.Unmarshal([]byte(text), &object); err != nil {
					t.Fatal(err)
				}
				api.Put(object)
			}
			api.Intercept = func(r *fakeapi.Request) (any, error) {
				if r.Resource == c.forbidden && c.forbidden != "" {
					return nil, apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource(r.Resource).GroupResource(), "", nil)
				}
				return nil, nil
			}
			if c.servers == nil {
				c.servers = map[string]string{"gatehouse-0": ""}
			}
			kubeconfig := withServers(t, api, c.servers).Kubeconfig(t)
			code, said := gatehouse(t, "", append([]string{"lint", "--kubeconfig", kubeconfig}, c.args...)...)
			if code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("lint ends with %d, want %d and %q:\n%s", code, c.code, c.says, said)
			}
		})
	}
}
