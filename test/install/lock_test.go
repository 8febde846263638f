package install

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// parse splits the resource.
func (r *request) parse(t *testing.T) (schema.GroupVersionResource, string) {
	t.Helper()
	parts := strings.SplitN(r.resource, "/", 4)
	if len(parts) < 3 {
		t.Fatalf("the resource %q is not GROUP/VERSION/RESOURCE", r.resource)
	}
	subresource := ""
	if len(parts) == 4 {
		subresource = parts[3]
	}
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}, subresource
}

const tenants = "shop"

// clusterNamespaces are those of the cluster that is asked.
func clusterNamespaces() map[string]map[string]string {
	return map[string]map[string]string{
		system: nil, metav1.NamespaceSystem: nil, metav1.NamespacePublic: nil, corev1.NamespaceNodeLease: nil, metav1.NamespaceDefault: nil,
		tenants: {"team": "shop"},
	}
}

// metadata is an object that has nothing but that.
func metadata(namespace, name string) map[string]any {
	m := map[string]any{"name": name}
	if namespace != "" {
		m["namespace"] = namespace
	}
	return map[string]any{"apiVersion": "v1", "kind": "Any", "metadata": m}
}

// asking is a pod that asks for a sidecar, which fails closed where anything does.
func asking(namespace, name string) map[string]any {
	pod := metadata(namespace, name)
	pod["metadata"].(map[string]any)["annotations"] = map[string]any{"sidecar.gatehouse.dev/inject": "true"}
	return pod
}

// on is a request for each operation on a resource.
func on(resource, namespace, name string, object map[string]any) []*request {
	var all []*request
	for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
		all = append(all, &request{operation: operation, resource: resource, namespace: namespace, name: name, object: object})
	}
	return all
}

// namespaceObject is a namespace, as somebody changes its labels.
func namespaceObject(name string, labels map[string]string) map[string]any {
	object := metadata("", name)
	of := map[string]any{}
	for key, value := range namespaceLabels(name, labels) {
		of[key] = value
	}
	object["metadata"].(map[string]any)["labels"] = of
	return object
}

// independentRequests are the requests that never depend on Gatehouse, whatever people configure: with these a cluster comes up,
// its nodes join and stay, Gatehouse itself starts, and its configuration can be mended.
func independentRequests() []*request {
	var all []*request
	add := func(resource, namespace, name string) {
		all = append(all, on(resource, namespace, name, metadata(namespace, name))...)
	}
	// Everything in the namespaces of the system and in Gatehouse's own.
	for _, namespace := range []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, system} {
		for _, resource := range []string{
			"/v1/pods", "/v1/pods/status", "/v1/pods/ephemeralcontainers", "/v1/pods/binding", "/v1/pods/eviction", "/v1/bindings", "/v1/secrets", "/v1/configmaps",
			"/v1/services", "/v1/services/status", "/v1/endpoints", "/v1/serviceaccounts", "/v1/serviceaccounts/token", "/v1/replicationcontrollers",
			"apps/v1/deployments", "apps/v1/deployments/status", "apps/v1/deployments/scale", "apps/v1/daemonsets", "apps/v1/replicasets", "apps/v1/statefulsets",
			"apps/v1/controllerrevisions", "batch/v1/jobs", "batch/v1/jobs/status", "batch/v1/cronjobs", "discovery.k8s.io/v1/endpointslices",
			"policy/v1/poddisruptionbudgets", "autoscaling/v2/horizontalpodautoscalers", "networking.k8s.io/v1/networkpolicies",
			"rbac.authorization.k8s.io/v1/roles", "rbac.authorization.k8s.io/v1/rolebindings",
			"cert-manager.io/v1/certificates", "cert-manager.io/v1/certificaterequests", "cert-manager.io/v1/issuers", "monitoring.coreos.com/v1/podmonitors",
		} {
			add(resource, namespace, "x")
		}
		all = append(all, on("/v1/pods", namespace, "coredns", asking(namespace, "coredns"))...)
		// Of the namespace itself, labels may come and go.
		for _, labels := range []map[string]string{nil, {"pod-security.kubernetes.io/enforce": "restricted"}, {"gatehouse.dev/anything": "x"}} {
			all = append(all, on("/v1/namespaces", namespace, namespace, namespaceObject(namespace, labels))[1:2]...)
		}
	}
	for _, resource := range []string{
		"/v1/nodes", "/v1/nodes/status", "storage.k8s.io/v1/csinodes",
		"certificates.k8s.io/v1/certificatesigningrequests", "certificates.k8s.io/v1/certificatesigningrequests/approval", "certificates.k8s.io/v1/certificatesigningrequests/status",
		"authentication.k8s.io/v1/tokenreviews", "authentication.k8s.io/v1/selfsubjectreviews",
		"authorization.k8s.io/v1/subjectaccessreviews", "authorization.k8s.io/v1/selfsubjectaccessreviews", "authorization.k8s.io/v1/selfsubjectrulesreviews",
		"admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", "admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
		"admissionregistration.k8s.io/v1/validatingadmissionpolicies", "admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
		"gatehouse.dev/v1alpha1/sidecarprofiles", "gatehouse.dev/v1alpha1/sidecarprofiles/status", "gatehouse.dev/v1alpha1/admissionpolicies",
		"gatehouse.dev/v1alpha1/admissionpolicybindings", "gatehouse.dev/v1alpha1/accesstokens", "gatehouse.dev/v1alpha1/tokenrevocations",
	} {
		add(resource, "", "x")
	}
	for _, namespace := range []string{metav1.NamespaceDefault, tenants} {
		for _, resource := range []string{
			"coordination.k8s.io/v1/leases", "/v1/events", "events.k8s.io/v1/events", "authorization.k8s.io/v1/localsubjectaccessreviews",
			"gatehouse.dev/v1alpha1/policyexceptions",
		} {
			add(resource, namespace, "x")
		}
	}
	// What the API server does itself, and somebody in an emergency.
	for _, who := range []user.Info{
		&user.DefaultInfo{Name: "system:apiserver", Groups: []string{"system:masters", "system:authenticated"}},
		&user.DefaultInfo{Name: "jane", Groups: []string{"system:authenticated", v1alpha1.BreakGlassGroup}},
	} {
		emergency := slices.Concat(
			on("/v1/pods", tenants, "x", asking(tenants, "x")), on("apps/v1/deployments", tenants, "x", metadata(tenants, "x")),
			on("rbac.authorization.k8s.io/v1/clusterroles", "", "x", metadata("", "x")), on("/v1/namespaces", tenants, tenants, namespaceObject(tenants, nil)),
			on("apiextensions.k8s.io/v1/customresourcedefinitions", "", "x", metadata("", "x")),
		)
		for _, r := range emergency {
			r.user = who
		}
		if who.GetName() == "system:apiserver" {
			// It makes no pods, and a request to be sent a sidecar is one from a tenant.
			emergency = emergency[3:]
		}
		all = append(all, emergency...)
	}
	return all
}

// optionalRequests are the requests that do not depend on Gatehouse as it is installed: unless somebody registers it for a
// policy about them.
func optionalRequests() []*request {
	var all []*request
	for _, namespace := range []string{metav1.NamespaceDefault, tenants} {
		for _, resource := range []string{
			// What schedulers, kubelets and controllers write of what is running already.
			"/v1/pods/binding", "/v1/pods/status", "/v1/pods/eviction", "/v1/pods/resize", "/v1/bindings", "/v1/endpoints", "discovery.k8s.io/v1/endpointslices",
			"apps/v1/deployments/status", "apps/v1/deployments/scale", "apps/v1/replicasets/status", "apps/v1/replicasets/scale", "batch/v1/jobs/status",
			"/v1/serviceaccounts", "/v1/serviceaccounts/token", "/v1/configmaps", "/v1/secrets", "/v1/services", "/v1/services/status",
			"/v1/persistentvolumeclaims", "/v1/persistentvolumeclaims/status", "/v1/resourcequotas", "/v1/limitranges",
			"policy/v1/poddisruptionbudgets", "autoscaling/v2/horizontalpodautoscalers", "networking.k8s.io/v1/networkpolicies", "networking.k8s.io/v1/ingresses",
			"rbac.authorization.k8s.io/v1/roles", "rbac.authorization.k8s.io/v1/rolebindings",
		} {
			all = append(all, on(resource, namespace, "x", metadata(namespace, "x"))...)
		}
		// Deleting anything.
		for _, resource := range []string{"/v1/pods", "apps/v1/deployments", "apps/v1/replicasets", "apps/v1/daemonsets", "apps/v1/statefulsets", "batch/v1/jobs", "batch/v1/cronjobs"} {
			all = append(all, &request{operation: admission.Delete, resource: resource, namespace: namespace, name: "x", object: asking(namespace, "x")})
		}
	}
	for _, resource := range []string{
		"scheduling.k8s.io/v1/priorityclasses", "flowcontrol.apiserver.k8s.io/v1/flowschemas", "apiextensions.k8s.io/v1/customresourcedefinitions",
		"apiextensions.k8s.io/v1/customresourcedefinitions/status", "rbac.authorization.k8s.io/v1/clusterroles", "rbac.authorization.k8s.io/v1/clusterrolebindings",
		"apiregistration.k8s.io/v1/apiservices", "/v1/persistentvolumes", "storage.k8s.io/v1/storageclasses", "storage.k8s.io/v1/volumeattachments",
		"storage.k8s.io/v1/csidrivers", "node.k8s.io/v1/runtimeclasses",
	} {
		all = append(all, on(resource, "", "x", metadata("", "x"))...)
	}
	all = append(all, on("/v1/namespaces", "new", "new", namespaceObject("new", nil))[:1]...)
	for _, namespace := range []string{tenants, metav1.NamespaceDefault} {
		all = append(all, on("/v1/namespaces", namespace, namespace, namespaceObject(namespace, nil))...)
		all = append(all, on("/v1/namespaces/status", namespace, namespace, namespaceObject(namespace, nil))...)
		all = append(all, on("/v1/namespaces/finalize", namespace, namespace, namespaceObject(namespace, nil))...)
	}
	return all
}

// TestCannotLock: what a cluster needs to come up, to stay up and to be mended never waits for an answer of Gatehouse.
func TestCannotLock(t *testing.T) {
	t.Parallel()
	for _, v := range append(slices.Clone(variants(t)), everything(t)) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(t, v.objects, clusterNamespaces())
			requests := independentRequests()
			if v.name != "everything" {
				requests = slices.Concat(requests, optionalRequests())
			}
			for _, r := range requests {
				if closed := s.closed(t, r); len(closed) > 0 {
					t.Errorf("%s %s %s/%s of %v waits for %q", r.operation, r.resource, r.namespace, r.name, r.user, closed)
				}
			}
		})
	}
}

// TestOwnPodsAreNotSent: not even to a webhook that fails open, which would make each start wait for a timeout.
func TestOwnPodsAreNotSent(t *testing.T) {
	t.Parallel()
	for _, v := range append(slices.Clone(variants(t)), everything(t)) {
		s := newAPIServer(t, v.objects, clusterNamespaces())
		for _, namespace := range []string{system, metav1.NamespaceSystem, corev1.NamespaceNodeLease} {
			for _, object := range []map[string]any{asking(namespace, "x"), metadata(namespace, "x")} {
				for _, r := range on("/v1/pods", namespace, "x", object) {
					if called := s.calls(t, r); len(called) > 0 {
						t.Errorf("%s: %s of a pod in %s is sent to %v", v.name, r.operation, namespace, called)
					}
				}
			}
		}
	}
}

// TestDoesSomething is the control of the two above: what Gatehouse is for is sent, and must be answered. A registration
// that sends nothing could not lock a cluster either.
func TestDoesSomething(t *testing.T) {
	t.Parallel()
	for _, v := range append(slices.Clone(variants(t)), everything(t)) {
		s := newAPIServer(t, v.objects, clusterNamespaces())
		for what, c := range map[string]struct {
			request request
			want    []string
		}{
			"a pod that asks for a sidecar": {request{operation: admission.Create, resource: "/v1/pods", object: asking(tenants, "x")}, []string{"asked.mutate.gatehouse.dev", "fail.validate.gatehouse.dev"}},
			"a pod":                         {request{operation: admission.Create, resource: "/v1/pods", object: metadata(tenants, "x")}, []string{"fail.validate.gatehouse.dev"}},
			"an ephemeral container":        {request{operation: admission.Update, resource: "/v1/pods/ephemeralcontainers", object: metadata(tenants, "x")}, []string{"fail.validate.gatehouse.dev"}},
			"a deployment":                  {request{operation: admission.Create, resource: "apps/v1/deployments", object: metadata(tenants, "x")}, []string{"fail.validate.gatehouse.dev"}},
			"a change of a daemon set":      {request{operation: admission.Update, resource: "apps/v1/daemonsets", object: metadata(tenants, "x")}, []string{"fail.validate.gatehouse.dev"}},
			"a cron job":                    {request{operation: admission.Create, resource: "batch/v1/cronjobs", object: metadata(tenants, "x")}, []string{"fail.validate.gatehouse.dev"}},
		} {
			c.request.namespace, c.request.name = tenants, "x"
			closed := s.closed(t, &c.request)
			slices.Sort(closed)
			if !slices.Equal(closed, c.want) {
				t.Errorf("%s: %s waits for %q, want %q", v.name, what, closed, c.want)
			}
		}
	}
}

// TestEverythingIsSent: the widest registration sends what the others do not, or it would prove nothing.
func TestEverythingIsSent(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t, everything(t).objects, clusterNamespaces())
	for _, r := range optionalRequests() {
		if strings.HasPrefix(r.resource, "/v1/bindings") {
			continue
		}
		if closed := s.closed(t, r); !slices.Contains(closed, "fail.validate.gatehouse.dev") {
			t.Errorf("%s %s in %q waits for %q only", r.operation, r.resource, r.namespace, closed)
		}
	}
}

// TestSelectorsOfPolicies: what the selectors of all policies leave out is not sent, and everything else is.
func TestSelectorsOfPolicies(t *testing.T) {
	t.Parallel()
	config := t.TempDir()
	must(t, os.WriteFile(filepath.Join(config, "secrets.yaml"), []byte(`
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: secrets}
spec:
  validationActions: [Deny]
  matchConstraints:
    namespaceSelector: {matchLabels: {team: shop}}
    objectSelector: {matchLabels: {pay: "true"}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [secrets]}]
  validations:
  - {expression: "true"}
`), 0o600))
	must(t, os.WriteFile(filepath.Join(config, "profile.yaml"), []byte(`{apiVersion: gatehouse.dev/v1alpha1, kind: SidecarProfile, metadata: {name: x}, spec: {template: {spec: {containers: [{name: x, image: x}]}}}}`), 0o600))
	v := newVariant(t, "selectors", run(t, binary(t), "manifests", "--service", system+"/"+name, "--certificates", "self-signed", "--part", "registration", "--config", config))
	s := newAPIServer(t, v.objects, clusterNamespaces())
	for _, namespace := range []string{tenants, metav1.NamespaceDefault} {
		for _, pay := range []string{"true", "false"} {
			object := metadata(namespace, "x")
			object["metadata"].(map[string]any)["labels"] = map[string]any{"pay": pay}
			for _, r := range on("/v1/secrets", namespace, "x", object) {
				if sent := len(s.closed(t, r)) > 0; sent != (namespace == tenants && pay == "true") {
					t.Errorf("%s of pay=%s in %s is sent: %v", r.operation, pay, namespace, sent)
				}
			}
		}
	}
}

// TestTenantsCannotEvade: whatever labels, annotations and names a tenant gives to a pod and a namespace, and whoever it
// is, the pod is sent for validation, and for injection to exactly one of two: the one that must answer if it asks.
func TestTenantsCannotEvade(t *testing.T) {
	t.Parallel()
	const rounds = 400
	keys := []string{
		"app", "team", "control-plane", "gatehouse.dev/exclude", "gatehouse.dev/ignore", "gatehouse.dev/certificates", "app.kubernetes.io/name", "app.kubernetes.io/component",
		"kubernetes.io/metadata.name", "name", "k8s-app", "tier", "sidecar.gatehouse.dev/status", "sidecar.gatehouse.dev/injected", "openshift.io/run-level",
		"admission.gatekeeper.sh/ignore", "helm.sh/hook", "kubernetes.io/config.source", "kubernetes.io/config.mirror", "pod-security.kubernetes.io/enforce",
	}
	values := []string{"", "true", "false", "gatehouse", system, metav1.NamespaceSystem, corev1.NamespaceNodeLease, "server", "ignore", "kube-dns", "control-plane", "1"}
	for _, v := range append(slices.Clone(variants(t)), everything(t)) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(t, v.objects, nil)
			for seed := range uint64(rounds) {
				random := rand.New(rand.NewPCG(seed, 7))
				some := func() map[string]string {
					all := map[string]string{}
					for range random.IntN(6) {
						all[keys[random.IntN(len(keys))]] = values[random.IntN(len(values))]
					}
					return all
				}
				namespace := []string{tenants, "gatehouse", "gatehouse-system-2", "kube-system-x", "kube", "x-gatehouse-system"}[random.IntN(6)]
				podName := values[1+random.IntN(len(values)-1)] + "-x"
				object := metadata(namespace, podName)
				meta := object["metadata"].(map[string]any)
				annotations := some()
				asks := random.IntN(2) == 0
				if asks {
					annotations["sidecar.gatehouse.dev/inject"] = []string{"true", "mesh", "mesh,-logs", "yes", "-a,b", " "}[random.IntN(6)]
				}
				for field, of := range map[string]map[string]string{"labels": some(), "annotations": annotations} {
					set := map[string]any{}
					for key, value := range of {
						set[key] = value
					}
					meta[field] = set
				}
				who := &user.DefaultInfo{
					Name:   []string{"jane", "system:serviceaccount:shop:gatehouse", "gatehouse", "system:apiserver:x", "system:node:x"}[random.IntN(5)],
					Groups: []string{"system:authenticated", "system:serviceaccounts:" + namespace, "gatehouse.dev:break-glas", "gatehouse.dev"},
				}
				s.setNamespace(t, namespace, some())
				called := s.calls(t, &request{operation: admission.Create, resource: "/v1/pods", namespace: namespace, name: podName, object: object, user: who})
				want := map[string]admissionregistrationv1.FailurePolicyType{"fail.validate.gatehouse.dev": admissionregistrationv1.Fail}
				if asks {
					want["asked.mutate.gatehouse.dev"] = admissionregistrationv1.Fail
				} else {
					want["default.mutate.gatehouse.dev"] = admissionregistrationv1.Ignore
				}
				if !maps.Equal(called, want) {
					t.Fatalf("seed %d: the pod %v in the namespace %s of %s is sent to %v, want %v", seed, object, namespace, who.Name, called, want)
				}
			}
		})
	}
}
