package audit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

func resource(group, version, plural, kind string, namespaced bool) fakeapi.Resource {
	return fakeapi.Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: plural}, Kind: kind, Namespaced: namespaced}
}

var (
	pods        = resource("", "v1", "pods", "Pod", true)
	secrets     = resource("", "v1", "secrets", "Secret", true)
	configMaps  = resource("", "v1", "configmaps", "ConfigMap", true)
	namespaces  = resource("", "v1", "namespaces", "Namespace", false)
	events      = resource("", "v1", "events", "Event", true)
	nodes       = resource("", "v1", "nodes", "Node", false)
	deployments = resource("apps", "v1", "deployments", "Deployment", true)
	widgets     = resource("example.com", "v1", "widgets", "Widget", true)
	oldWidgets  = resource("example.com", "v1beta1", "widgets", "Widget", true)
	clusterRole = resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false)
)

// server returns an API server with the resources above.
func server() *fakeapi.Server {
	return fakeapi.New(pods, secrets, configMaps, namespaces, events, nodes, deployments, widgets, oldWidgets, clusterRole)
}

// put creates objects of YAML documents.
func put(t testing.TB, s *fakeapi.Server, documents ...string) {
	t.Helper()
	for _, text := range documents {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		s.Put(object)
	}
}

// compile compiles documents.
func compile(t testing.TB, documents ...string) (*config.Config, *webhooks.Snapshot) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	c, snapshot, found := config.CompileDir(dir)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return c, snapshot
}

// options returns those of an audit of the server.
func options(t testing.TB, s *fakeapi.Server, documents ...string) audit.Options {
	t.Helper()
	c, snapshot := compile(t, documents...)
	return audit.Options{Access: s.Config("audit"), Config: c, Snapshot: snapshot}
}

// policyOf returns an AdmissionPolicy about resources, as "pods" or "apps/deployments".
func policyOf(name, resources, spec string) string {
	group, plural, found := strings.Cut(resources, "/")
	if !found {
		group, plural = "", resources
	}
	return fmt.Sprintf(`{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: %s}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [%q], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [%q]}]}, validationActions: [Deny], %s}}`,
		name, group, plural, spec)
}

// found is a sink that writes lines: "fail ConfigMap shop/a policy/rule: message".
type found struct {
	objects []string
	lines   []string
	about   audit.Object
}

func (f *found) Object(o audit.Object) {
	f.about = o
	f.objects = append(f.objects, o.Kind+" "+strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
}

func (f *found) Result(r audit.Result) {
	line := fmt.Sprintf("%s %s %s %s", r.Status, r.Object.Kind, strings.TrimPrefix(r.Object.Namespace+"/"+r.Object.Name, "/"), r.Policy+"/"+r.Rule)
	if r.Template != "" {
		line += " in " + r.Template
	}
	if r.Exception != "" {
		line += " by " + r.Exception
	}
	f.lines = append(f.lines, line+": "+r.Message)
	if r.Object != f.about {
		f.lines = append(f.lines, "another object than the last one")
	}
}

func (f *found) Injection(o audit.Object, profile string, state audit.Injection) {
	f.lines = append(f.lines, fmt.Sprintf("%s %s/%s %s", state, o.Namespace, o.Name, profile))
}

// coverage returns lines: "configmaps: 3 objects", with what is wrong.
func coverage(o *audit.Outcome) string {
	var lines []string
	for _, c := range o.Coverage {
		line := fmt.Sprintf("%s %s: %d", c.GroupResource(), c.Version, c.Objects)
		if !c.Complete {
			line += ", incomplete"
		}
		if c.Problem != "" {
			line += ": " + c.Problem
		}
		if c.Right != "" {
			line += " [" + c.Right + "]"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
