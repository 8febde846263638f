package registration

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

const (
	tenants, ownNamespace = "shop", "gatehouse-system"
	leases, system        = leasesNamespace, systemNamespace
)

// registered are the registrations that a cluster is asked about: that of no configuration, and the widest that the program registers,
// whatever people configure, which is for a policy about everything that fails closed.
func registered(t *testing.T) map[string]*apiServer {
	t.Helper()
	version := environment.DefaultCompatibilityVersion()
	return map[string]*apiServer{
		"default":    newAPIServer(t, version, options(func(o *Options) { o.CustomResources = true })),
		"everything": newAPIServer(t, version, options(func(o *Options) { o.CustomResources, o.Spec = true, everything() })),
	}
}

// closed are the webhooks that are called for a request and must answer.
func (s *apiServer) closed(t *testing.T, who user.Info, r request) (names []string) {
	t.Helper()
	for _, called := range s.callsOf(t, who, r) {
		if name, closed := strings.CutSuffix(called, " Fail"); closed {
			names = append(names, name)
		}
	}
	return names
}

// metadata is an object that has nothing but that.
func metadata(namespace string) map[string]any {
	m := map[string]any{"name": "x"}
	if namespace != "" {
		m["namespace"] = namespace
	}
	return map[string]any{"apiVersion": "v1", "kind": "Any", "metadata": m}
}

// askingPod is a pod that asks for a sidecar, which fails closed where anything does.
func askingPod(namespace string) map[string]any {
	pod := metadata(namespace)
	pod["metadata"].(map[string]any)["annotations"] = map[string]any{"sidecar.gatehouse.dev/inject": "true"}
	return pod
}

// on is a request for each operation on a resource, GROUP/VERSION/RESOURCE[/SUBRESOURCE].
func on(resource, namespace string, object map[string]any) []request {
	parts := strings.SplitN(resource, "/", 3)
	of := func(operation admission.Operation) request {
		r := request{operation: operation, group: parts[0], version: parts[1], resource: parts[2], namespace: namespace, object: object}
		if operation == admission.Delete {
			r.object, r.old = nil, object
		}
		return r
	}
	return []request{of(admission.Create), of(admission.Update), of(admission.Delete)}
}

// independentRequests are the requests that never depend on Gatehouse, whatever people configure: with these a cluster comes up,
// its nodes join and stay, Gatehouse itself starts, and its configuration can be mended.
func independentRequests() []request {
	var all []request
	add := func(resource, namespace string) {
		all = append(all, on(resource, namespace, metadata(namespace))...)
	}
	// Everything in the namespaces of the system and in Gatehouse's own.
	for _, namespace := range []string{system, leases, ownNamespace} {
		for _, resource := range []string{
			"/v1/pods", "/v1/pods/status", "/v1/pods/ephemeralcontainers", "/v1/pods/binding", "/v1/pods/eviction", "/v1/bindings", "/v1/secrets", "/v1/configmaps",
			"/v1/services", "/v1/services/status", "/v1/endpoints", "/v1/serviceaccounts", "/v1/serviceaccounts/token", "/v1/replicationcontrollers",
			"apps/v1/deployments", "apps/v1/deployments/status", "apps/v1/deployments/scale", "apps/v1/daemonsets", "apps/v1/replicasets", "apps/v1/statefulsets",
			"apps/v1/controllerrevisions", "batch/v1/jobs", "batch/v1/jobs/status", "batch/v1/cronjobs", "discovery.k8s.io/v1/endpointslices",
			"policy/v1/poddisruptionbudgets", "autoscaling/v2/horizontalpodautoscalers", "networking.k8s.io/v1/networkpolicies",
			"rbac.authorization.k8s.io/v1/roles", "rbac.authorization.k8s.io/v1/rolebindings",
			"cert-manager.io/v1/certificates", "cert-manager.io/v1/certificaterequests", "cert-manager.io/v1/issuers", "monitoring.coreos.com/v1/podmonitors",
		} {
			add(resource, namespace)
		}
		all = append(all, on("/v1/pods", namespace, askingPod(namespace))...)
	}
	for _, resource := range []string{
		"/v1/nodes", "/v1/nodes/status", "storage.k8s.io/v1/csinodes",
		"certificates.k8s.io/v1/certificatesigningrequests", "certificates.k8s.io/v1/certificatesigningrequests/approval", "certificates.k8s.io/v1/certificatesigningrequests/status",
		"authentication.k8s.io/v1/tokenreviews", "authentication.k8s.io/v1/selfsubjectreviews",
		"authorization.k8s.io/v1/subjectaccessreviews", "authorization.k8s.io/v1/selfsubjectaccessreviews", "authorization.k8s.io/v1/selfsubjectrulesreviews",
		"gatehouse.dev/v1alpha1/sidecarprofiles", "gatehouse.dev/v1alpha1/sidecarprofiles/status", "gatehouse.dev/v1alpha1/admissionpolicies",
		"gatehouse.dev/v1alpha1/admissionpolicybindings", "gatehouse.dev/v1alpha1/accesstokens", "gatehouse.dev/v1alpha1/tokenrevocations",
	} {
		add(resource, "")
	}
	for _, namespace := range []string{metav1.NamespaceDefault, tenants} {
		for _, resource := range []string{
			"coordination.k8s.io/v1/leases", "/v1/events", "events.k8s.io/v1/events", "authorization.k8s.io/v1/localsubjectaccessreviews",
			"gatehouse.dev/v1alpha1/policyexceptions",
		} {
			add(resource, namespace)
		}
	}
	return all
}

// optionalRequests are the requests that do not depend on Gatehouse as it is installed: unless somebody registers it for a
// policy about them.
func optionalRequests() []request {
	var all []request
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
			all = append(all, on(resource, namespace, metadata(namespace))...)
		}
		// Deleting anything.
		for _, resource := range []string{"/v1/pods", "apps/v1/deployments", "apps/v1/replicasets", "apps/v1/daemonsets", "apps/v1/statefulsets", "batch/v1/jobs", "batch/v1/cronjobs"} {
			all = append(all, on(resource, namespace, askingPod(namespace))[2])
		}
	}
	for _, resource := range []string{
		"scheduling.k8s.io/v1/priorityclasses", "flowcontrol.apiserver.k8s.io/v1/flowschemas", "apiextensions.k8s.io/v1/customresourcedefinitions",
		"apiextensions.k8s.io/v1/customresourcedefinitions/status", "rbac.authorization.k8s.io/v1/clusterroles", "rbac.authorization.k8s.io/v1/clusterrolebindings",
		"apiregistration.k8s.io/v1/apiservices", "/v1/persistentvolumes", "storage.k8s.io/v1/storageclasses", "storage.k8s.io/v1/volumeattachments",
		"storage.k8s.io/v1/csidrivers", "node.k8s.io/v1/runtimeclasses",
	} {
		all = append(all, on(resource, "", metadata(""))...)
	}
	for _, resource := range []string{"/v1/namespaces", "/v1/namespaces/status", "/v1/namespaces/finalize"} {
		all = append(all, on(resource, "x", metadata(""))...) // which is its name, as in the API server
	}
	return all
}

// TestCannotLock: what a cluster needs to come up, to stay up and to be mended never waits for an answer of Gatehouse.
func TestCannotLock(t *testing.T) {
	t.Parallel()
	somebody := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:any", Groups: []string{"system:authenticated"}}
	emergency := &user.DefaultInfo{Name: "jane", Groups: []string{"system:authenticated", v1alpha1.BreakGlassGroup}}
	own := &user.DefaultInfo{Name: "system:apiserver", Groups: []string{"system:masters", "system:authenticated"}}
	for name, s := range registered(t) {
		check := func(who user.Info, requests ...request) {
			t.Helper()
			for _, r := range requests {
				if closed := s.closed(t, who, r); len(closed) > 0 {
					t.Errorf("%s: %s %s of %s in %q waits for %q", name, r.operation, r.resource, who.GetName(), r.namespace, closed)
				}
			}
		}
		check(somebody, independentRequests()...)
		if name == "default" {
			check(somebody, optionalRequests()...)
		}
		check(emergency, optionalRequests()...)
		check(emergency, slices.Concat(on("/v1/pods", tenants, askingPod(tenants)), on("apps/v1/deployments", tenants, metadata(tenants)))...)
		// It makes no pods, and a request to be sent a sidecar is one from a tenant.
		check(own, slices.Concat(on("rbac.authorization.k8s.io/v1/clusterroles", "", metadata("")), on("/v1/namespaces", "x", metadata("")))...)
		// Not even to a webhook that fails open, which would make each start wait for a timeout.
		for _, namespace := range []string{ownNamespace, system, leases} {
			for _, r := range slices.Concat(on("/v1/pods", namespace, askingPod(namespace)), on("/v1/pods", namespace, metadata(namespace))) {
				if called := s.callsOf(t, somebody, r); len(called) > 0 {
					t.Errorf("%s: %s of a pod in %s is sent to %v", name, r.operation, namespace, called)
				}
			}
		}
	}
}

// TestDoesSomething is the control of the one above: what Gatehouse is for is sent, and must be answered. A registration
// that sends nothing could not lock a cluster either.
func TestDoesSomething(t *testing.T) {
	t.Parallel()
	const validated = "fail.validate.gatehouse.dev"
	somebody := &user.DefaultInfo{Name: "alice"}
	for name, s := range registered(t) {
		if got := s.closed(t, somebody, on("/v1/pods", tenants, askingPod(tenants))[0]); !slices.Equal(got, []string{"asked.mutate.gatehouse.dev", validated}) {
			t.Errorf("%s: a pod that asks for a sidecar waits for %q", name, got)
		}
		for _, resource := range []string{"/v1/pods", "/v1/pods/ephemeralcontainers", "apps/v1/deployments", "apps/v1/daemonsets", "batch/v1/cronjobs"} {
			if got := s.closed(t, somebody, on(resource, tenants, metadata(tenants))[1]); !slices.Equal(got, []string{validated}) {
				t.Errorf("%s: a change of %s waits for %q", name, resource, got)
			}
		}
		if name == "default" {
			continue
		}
		for _, r := range optionalRequests() {
			if got := s.closed(t, somebody, r); !slices.Contains(got, validated) {
				t.Errorf("%s %s in %q waits for %q only", r.operation, r.resource, r.namespace, got)
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
	values := []string{"", "true", "false", "gatehouse", ownNamespace, system, leases, "server", "ignore", "kube-dns", "control-plane", "1"}
	for name, s := range registered(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
				object := metadata(namespace)
				meta := object["metadata"].(map[string]any)
				meta["name"] = values[1+random.IntN(len(values)-1)] + "-x"
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
				called := s.callsOf(t, who, on("/v1/pods", namespace, object)[0])
				want := []string{"default.mutate.gatehouse.dev Ignore", "fail.validate.gatehouse.dev Fail"}
				if asks {
					want[0] = "asked.mutate.gatehouse.dev Fail"
				}
				if slices.Sort(called); !slices.Equal(called, want) {
					t.Fatalf("seed %d: the pod %v in the namespace %s of %s is sent to %v, want %v", seed, object, namespace, who.Name, called, want)
				}
			}
		})
	}
}
