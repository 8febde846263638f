package install

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// site is a cluster that Gatehouse is installed in, without anybody who would run its pods.
type site struct {
	*cluster.Cluster
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newSite(t *testing.T, options cluster.Options) *site {
	t.Helper()
	s := &site{Cluster: cluster.New(t, options)}
	var err error
	s.dynamic, err = dynamic.NewForConfig(s.Config())
	must(t, err)
	client, err := discovery.NewDiscoveryClientForConfig(s.Config())
	must(t, err)
	s.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	return s
}

// foreignDefinitions makes what the objects are of that others define, as cert-manager does: an API server takes no
// object of a kind that it does not know.
func (s *site) foreignDefinitions(t *testing.T, v *variant) {
	t.Helper()
	groups := map[string]bool{}
	for _, o := range v.objects {
		groups[o.GroupVersionKind().Group] = true
	}
	if !groups["cert-manager.io"] {
		return
	}
	s.kubectl(t, nil, "apply", "--server-side", "-f", filepath.Join(root(t), "bin", "certmanager", "crds"))
	s.kubectl(t, nil, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	s.mapper.Reset()
}

// kubectl runs kubectl, and returns what it says to standard error.
func (s *site) kubectl(t *testing.T, input []byte, args ...string) string {
	t.Helper()
	said, err := s.tryKubectl(t.Context(), input, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return said
}

func (s *site) tryKubectl(ctx context.Context, input []byte, args ...string) (string, error) {
	command := s.Kubectl(ctx, args...)
	var stderr bytes.Buffer
	command.Stdin, command.Stderr = bytes.NewReader(input), &stderr
	err := command.Run()
	return stderr.String(), err
}

// install applies a variant as people do: in one command.
func (s *site) install(t *testing.T, v *variant) (warnings string) {
	t.Helper()
	return s.kubectl(t, v.withoutHooks(t), "apply", "--server-side", "-f", "-")
}

// withoutHooks is the text of a variant without the hooks of Helm.
func (v *variant) withoutHooks(t *testing.T) []byte {
	t.Helper()
	var text bytes.Buffer
	for _, o := range v.objects {
		if isHook(o) {
			continue
		}
		document, err := o.MarshalJSON()
		must(t, err)
		text.WriteString("---\n")
		text.Write(document)
	}
	return text.Bytes()
}

// client is the client for an object.
func (s *site) client(t *testing.T, o *unstructured.Unstructured) dynamic.ResourceInterface {
	t.Helper()
	gvk := o.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		s.mapper.Reset()
		mapping, err = s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	must(t, err)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return s.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace())
	}
	return s.dynamic.Resource(mapping.Resource)
}

// state is what each object of a variant is now: its identity, and how often what it specifies has changed. An object
// without a generation changes with each write.
func (s *site) state(t *testing.T, v *variant) map[string]string {
	t.Helper()
	state := map[string]string{}
	for _, o := range v.objects {
		if isHook(o) {
			continue
		}
		live, err := s.client(t, o).Get(t.Context(), o.GetName(), metav1.GetOptions{})
		must(t, err)
		version := fmt.Sprintf("generation %d", live.GetGeneration())
		if live.GetGeneration() == 0 {
			version = "resourceVersion " + live.GetResourceVersion()
		}
		state[fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())] = fmt.Sprintf("%s, uid %s", version, live.GetUID())
	}
	return state
}

// TestApply: the API server takes every object of each variant without a word, and applying it again changes nothing, nor
// does another field manager conflict: server-side apply compares atomic fields with their defaults.
func TestApply(t *testing.T) {
	t.Parallel()
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			s := newSite(t, cluster.Options{})
			s.foreignDefinitions(t, v)
			s.createNamespace(t, v)
			if said := s.install(t, v); said != "" {
				t.Errorf("kubectl apply says %q, want nothing", said)
			}
			before := s.state(t, v)
			if said := s.install(t, v); said != "" {
				t.Errorf("kubectl apply says the second time %q, want nothing", said)
			}
			s.unchanged(t, before, s.state(t, v))
			if said := s.kubectl(t, v.withoutHooks(t), "apply", "--server-side", "--field-manager=another", "-f", "-"); said != "" {
				t.Errorf("kubectl apply by another field manager says %q, want nothing", said)
			}
		})
	}
}

// createNamespace makes the namespace of a variant that does not have it, as helm install --create-namespace does, with the label by
// which the API server would warn of pods that Pod Security does not allow there.
func (s *site) createNamespace(t *testing.T, v *variant) {
	t.Helper()
	if slices.ContainsFunc(v.objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" }) {
		return
	}
	level := "restricted"
	if v.pods(t)["Deployment "+name].Spec.HostNetwork {
		level = "privileged"
	}
	must(t, s.CreateNamespace(t.Context(), system, map[string]string{"pod-security.kubernetes.io/warn": level}))
}

func (s *site) unchanged(t *testing.T, before, after map[string]string) {
	t.Helper()
	for object, state := range before {
		if after[object] != state {
			t.Errorf("%s: was %s, is %s", object, state, after[object])
		}
	}
}
