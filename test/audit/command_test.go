package audit

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// report is what the tests read of the output of audit.
type report struct {
	Result   string `json:"result"`
	Complete bool   `json:"complete"`
	Objects  int64  `json:"objects"`
	Rules    []struct {
		Policy, Rule                string
		Fail, Warn, Error, Excepted int64
		Examples                    []struct{ Status, Kind, Namespace, Name, Template, Message, Exception string }
	} `json:"rules"`
	Injection []struct {
		Profile string
		States  map[string]int64
	} `json:"injection"`
	Coverage []struct {
		Resource, Right string
		Objects         int64
		Complete        bool
	} `json:"coverage"`
	Unjudged []string `json:"unjudged"`
	Skipped  []struct{ Policy, Rule, Reason string }
}

// violations returns the objects that fail or warn, each with its rule.
func (r *report) violations() []string {
	var all []string
	for i := range r.Rules {
		for _, x := range r.Rules[i].Examples {
			label := x.Status
			if x.Exception != "" {
				label = "excepted"
			}
			all = append(all, fmt.Sprintf("%s %s %s/%s %s", label, r.Rules[i].Policy, x.Namespace, x.Name, x.Template))
		}
	}
	slices.Sort(all)
	return all
}

// audited runs an audit with -o json. No pod is a server of Gatehouse here.
func audited(t *testing.T, kubeconfig string, args ...string) (int, *report) {
	t.Helper()
	code, out, messages := program(t, append([]string{"audit", "--kubeconfig", kubeconfig, "--partial", "-o", "json"}, args...)...)
	r := &report{}
	if err := json.Unmarshal([]byte(out), r); err != nil {
		t.Fatalf("exit code %d, %v in %.2000s\n%s", code, err, out, messages)
	}
	return code, r
}

// site is a cluster with objects that policies have never seen, and then policies.
type site struct {
	*cluster.Cluster
	admin string
}

// newSite starts it. The policies are not enforced yet.
func newSite(t *testing.T) *site {
	t.Helper()
	c := cluster.New(t, cluster.Options{})
	s := &site{Cluster: c, admin: kubeconfig(t, c.Config())}
	for name, labels := range map[string]map[string]string{"shop": {"logs": "shipped"}, "pay": nil, "gatehouse-system": nil} {
		must(t, c.CreateNamespace(t.Context(), name, labels))
	}
	apply(t, c, read(t, "objects.yaml"))
	s.applyDefinitions(t)
	root, err := support.Root()
	must(t, err)
	profile, err := os.ReadFile(filepath.Join(root, "manifests/examples/log-shipper/profile.yaml"))
	must(t, err)
	_, profileText, _ := strings.Cut(string(profile), "---\n") // without the namespace
	if profileText == "" {
		profileText = string(profile)
	}
	support.Eventually(t, "the definitions are served", func() error {
		text, err := kubectl(t, c, read(t, "active/policies.yaml")+"---\n"+profileText, "apply", "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
	apply(t, c, read(t, "native.yaml"))
	return s
}

// applyDefinitions applies the CustomResourceDefinitions.
func (s *site) applyDefinitions(t *testing.T) {
	t.Helper()
	definitions, err := gatehouse.Run(t.Context(), "manifests", "--crds")
	must(t, err)
	apply(t, s.Cluster, definitions)
}

// serve starts a server with the custom resources, and registers it for what the policies of a directory match.
func (s *site) serve(t *testing.T, config string) *gatehouse.Server {
	t.Helper()
	dir := t.TempDir()
	authority, err := cluster.NewAuthority("gatehouse")
	must(t, err)
	cert, key, err := authority.Serve(cluster.ListenAddress())
	must(t, err)
	for file, content := range map[string][]byte{"ca.crt": authority.CertPEM(), "tls.crt": cert, "tls.key": key} {
		must(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
	}
	server, err := gatehouse.Start(t.Context(), filepath.Join(dir, "gatehouse.log"), "--kubeconfig", s.Kubeconfig(), "--custom-resources",
		"--listen", cluster.ListenAddress()+":0", "--ops-listen", "127.0.0.1:0", "--drain-delay", "1s",
		"--tls-cert", filepath.Join(dir, "tls.crt"), "--tls-key", filepath.Join(dir, "tls.key"))
	must(t, err)
	t.Cleanup(server.Kill)
	registration, err := gatehouse.Run(t.Context(), "manifests", "--name", "audit", "--url", "https://"+server.Reviews.String(), "--ca-file", filepath.Join(dir, "ca.crt"), "--custom-resources", "--config", config)
	must(t, err)
	apply(t, s.Cluster, registration)
	return server
}

// TestAudit audits what exists by what is active, by a candidate in its place and beside it, by the API server's own policies, and
// with few rights.
func TestAudit(t *testing.T) {
	s := newSite(t)
	registries := []string{"excepted registries pay/legacy ", "fail registries pay/ledger "}
	replicas := []string{"warn replicas shop/cart ", "warn replicas shop/checkout "}
	native := []string{"fail service-types shop/open "}
	candidate := []string{"fail memory-limits pay/ledger ", "fail memory-limits shop/cart spec.template"}
	for name, c := range map[string]struct {
		args []string
		want []string
		code int
	}{
		"what is active":         {nil, slices.Concat(registries, replicas, native), 1},
		"a candidate":            {[]string{"--config", "testdata/candidate"}, candidate, 1},
		"a candidate beside it":  {[]string{"--config", "testdata/candidate", "--with-cluster"}, slices.Concat(registries, replicas, native, candidate), 1},
		"one namespace":          {[]string{"-n", "shop"}, slices.Concat(replicas, native), 1},
		"one kind":               {[]string{"--kind", "deployments.apps"}, replicas, 0},
		"warnings too":           {[]string{"-n", "shop", "--fail-on", "violations=1", "--fail-on", "warnings"}, slices.Concat(replicas, native), 1},
		"all violations allowed": {[]string{"--fail-on", "violations=1000"}, slices.Concat(registries, replicas, native), 0},
	} {
		t.Run(name, func(t *testing.T) {
			code, got := audited(t, s.admin, c.args...)
			slices.Sort(c.want)
			if violations := got.violations(); code != c.code || !slices.Equal(violations, c.want) || !got.Complete {
				t.Errorf("exit code %d, complete %v %q,\n%q, want %d\n%q", code, got.Complete, got.Unjudged, violations, c.code, c.want)
			}
		})
	}
	_, got := audited(t, s.admin)
	if !slices.ContainsFunc(got.Skipped, func(s struct{ Policy, Rule, Reason string }) bool {
		return s.Policy == "owners" && strings.Contains(s.Reason, "userInfo")
	}) {
		t.Errorf("the rule about the user is not skipped: %+v", got.Skipped)
	}
	if len(got.Injection) != 1 || got.Injection[0].States["missing"] != 1 {
		t.Errorf("got injection %+v, want 1 pod without the sidecar", got.Injection)
	}
	t.Run("few rights", func(t *testing.T) { testFewRights(t, s) })
	t.Run("broken", func(t *testing.T) { testBroken(t, s) })
	t.Run("lines", func(t *testing.T) {
		code, out, _ := program(t, "audit", "--kubeconfig", s.admin, "--partial", "-o", "ndjson")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if last := lines[len(lines)-1]; code != 1 || len(lines) < 6 || !strings.HasPrefix(last, `{"report":{`) {
			t.Errorf("exit code %d, %d lines, the last is %.200s", code, len(lines), last)
		}
	})
	t.Run("guide", func(t *testing.T) { testGuide(t, s) })
}

// testFewRights audits as a user who may read policies and pods, and nothing else.
func testFewRights(t *testing.T, s *site) {
	apply(t, s.Cluster, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: auditor}
rules:
- {apiGroups: [gatehouse.dev], resources: ["*"], verbs: [list]}
- {apiGroups: [""], resources: [pods], verbs: [list]}
- {apiGroups: [apps], resources: [deployments, daemonsets, statefulsets, replicasets], verbs: [list]}
- {apiGroups: [batch], resources: [jobs, cronjobs], verbs: [list]}
- {apiGroups: [""], resources: [replicationcontrollers, podtemplates, namespaces], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: auditor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: auditor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: auditor}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
`)
	var access *rest.Config
	access, err := s.ConfigFor("auditor")
	must(t, err)
	code, got := audited(t, kubeconfig(t, access))
	if code != 2 || got.Complete || !slices.Contains(got.Unjudged, `missing right: get configmaps in namespace "shop"`) {
		t.Errorf("exit code %d, not judged: %q", code, got.Unjudged)
	}
	if violations := got.violations(); !slices.Contains(violations, "fail registries pay/ledger ") {
		t.Errorf("the rest is not judged: %q", violations)
	}
	nobody, err := s.ConfigFor("nobody")
	must(t, err)
	code, _, messages := program(t, "audit", "--kubeconfig", kubeconfig(t, nobody))
	if code != 2 || !strings.Contains(messages, "missing right: list admissionpolicies.gatehouse.dev") {
		t.Errorf("exit code %d: %s", code, messages)
	}
	code, out, messages := program(t, "audit", "--kubeconfig", kubeconfig(t, nobody), "--config", "testdata/candidate")
	if code != 2 || !strings.Contains(out, "missing right: list pods") {
		t.Errorf("exit code %d: %s%s", code, out, messages)
	}
}

// testBroken: a policy that does not compile is reported, and the rest is judged.
func testBroken(t *testing.T, s *site) {
	// No webhook reviews documents in this cluster, so that the policy gets in.
	apply(t, s.Cluster, strings.NewReplacer("registries", "broken", "object.spec", "objekt.spec").Replace(strings.SplitAfter(read(t, "active/policies.yaml"), "---\n")[0]))
	defer func() {
		text, err := kubectl(t, s.Cluster, "", "delete", "admissionpolicies.gatehouse.dev", "broken")
		if err != nil {
			t.Errorf("%v: %s", err, text)
		}
	}()
	code, out, messages := program(t, "audit", "--kubeconfig", s.admin)
	if code != 2 || !strings.Contains(out, "AdmissionPolicy/broken has errors") || !strings.Contains(messages, "objekt") || !strings.Contains(out, "pay/ledger") {
		t.Errorf("exit code %d:\n%s\n%s", code, out, messages)
	}
}

// times matches what differs between two runs.
var times = regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, in \S+$`)

// guideCommand is a command in a page with what it prints.
var guideCommand = regexp.MustCompile("(?s)\n```sh cluster\ngatehouse ([^\n]*)\n```\n\n```console\n(.*?)```\n")

// testGuide runs the commands of docs/tasks/audit-a-cluster.md, and compares what they print.
func testGuide(t *testing.T, s *site) {
	const page = "../../docs/tasks/audit-a-cluster.md"
	guide, err := os.ReadFile(page)
	must(t, err)
	if document := "```yaml candidate/memory-limits.yaml\n" + read(t, "candidate/memory-limits.yaml") + "```\n"; !strings.Contains(string(guide), document) {
		t.Error("the guide does not show the candidate of the test")
	}
	file, err := filepath.Abs(page)
	must(t, err)
	t.Chdir("testdata")
	t.Setenv("KUBECONFIG", s.admin)
	commands := guideCommand.FindAllStringSubmatch(string(guide), -1)
	if len(commands) == 0 {
		t.Error("the guide shows no command")
	}
	text := string(guide)
	for _, shown := range commands {
		command, want := shown[1], shown[2]
		// The cluster of the guide has servers.
		_, got, messages := program(t, append(strings.Fields(command), "--partial")...)
		got = times.ReplaceAllString(strings.Replace(got, ", without the documents of the servers' own --config", "", 1), "2026-11-20T09:00:00Z, in 200ms")
		if got != want && os.Getenv("UPDATE_GOLDEN") == "" {
			t.Errorf("gatehouse %s: got\n%swant\n%s%s", command, got, want, messages)
		}
		text = strings.Replace(text, want, got, 1)
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
}

// TestCheckAsTheCluster: check with a cluster says of manifests what its API server says, whose webhook is a server with the same
// custom resources.
func TestCheckAsTheCluster(t *testing.T) {
	s := newSite(t)
	config := t.TempDir()
	must(t, os.WriteFile(filepath.Join(config, "services.yaml"), []byte(`apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: services}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [services]}]}
  validations: [{expression: "true"}]
  validationActions: [Deny]
`), 0o600))
	s.serve(t, config)
	documents := strings.Split(`apiVersion: v1
kind: Pod
metadata: {name: bad, namespace: pay}
spec: {containers: [{name: a, image: docker.io/someone/bad:1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: legacy-2, namespace: pay}
spec: {containers: [{name: a, image: docker.io/someone/legacy:1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: good, namespace: shop}
spec: {containers: [{name: a, image: registry.example/a:1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: fine, namespace: pay}
spec: {containers: [{name: a, image: registry.example/a:1}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: few, namespace: shop}
spec: {replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: registry.example/a:1}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: enough, namespace: pay}
spec: {replicas: 5, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: registry.example/a:1}]}}}
---
apiVersion: v1
kind: Service
metadata: {name: open-2, namespace: shop}
spec: {type: NodePort, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: closed, namespace: shop}
spec: {ports: [{port: 80}]}
`, "---\n")
	create := func(document string) (string, error) {
		return kubectl(t, s.Cluster, document, "create", "--dry-run=server", "-f", "-")
	}
	support.Eventually(t, "the registrations and the native policy count", func() error {
		for _, i := range []int{0, 6} {
			if text, err := create(documents[i]); err == nil {
				return fmt.Errorf("admitted: %s", text)
			}
		}
		return nil
	})
	file := filepath.Join(t.TempDir(), "new.yaml")
	must(t, os.WriteFile(file, []byte(strings.Join(documents, "---\n")), 0o600))
	_, out, messages := program(t, "check", "--kubeconfig", s.admin, "--context", "prod", "--partial", "-f", file, "-o", "json") // the servers are no pods
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(documents) {
		t.Fatalf("%d lines: %s%s", len(lines), out, messages)
	}
	verdicts := map[string]int{}
	for i, document := range documents {
		var got struct {
			Verdict    string
			Violations []struct{ Message, Effect string }
		}
		must(t, json.Unmarshal([]byte(lines[i]), &got))
		verdicts[got.Verdict]++
		text, err := create(document)
		want := "admitted"
		switch {
		case err != nil:
			want = "refused"
		case strings.Contains(text, "Warning: "):
			want = "warned"
		}
		if got.Verdict != want {
			t.Errorf("check says %s of\n%s\nand the API server: %s", lines[i], document, text)
		}
		for _, v := range got.Violations {
			if (v.Effect == "denied" || v.Effect == "warned") && !strings.Contains(text, v.Message) {
				t.Errorf("check says %q, and the API server %s", v.Message, text)
			}
		}
	}
	if verdicts["admitted"] == 0 || verdicts["refused"] == 0 || verdicts["warned"] == 0 {
		t.Errorf("the manifests show too little: %v", verdicts)
	}
	code, out, messages := program(t, "explain", "--kubeconfig", s.admin, "--partial", "-f", file)
	if code != 0 || !strings.Contains(out, "verdict: refused") || !strings.Contains(out, "log-shipper") {
		t.Errorf("explain: exit code %d\n%s%s", code, out, messages)
	}
}
