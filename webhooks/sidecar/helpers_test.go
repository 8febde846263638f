package sidecar_test

import (
	"encoding/json"
	"os"
	"testing"

	"gomodules.xyz/jsonpatch/v2"
	evanphx "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// known returns the namespaces of most tests.
func known() objects {
	all := map[string]*corev1.Namespace{}
	for name, labels := range map[string]map[string]string{"shop": {"logs": "shipped", "env": "prod"}, "quiet": {}} {
		all[name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	return objects{namespaces: all}
}

// profile reads a profile from YAML.
func profile(t testing.TB, source, text string) sidecar.Profile {
	t.Helper()
	p := sidecar.Profile{Source: source}
	if err := yaml.UnmarshalStrict([]byte(text), &p.SidecarProfile); err != nil {
		t.Fatal(err)
	}
	return p
}

// compile compiles profiles written in YAML, for the known namespaces.
func compile(t testing.TB, texts ...string) *sidecar.Set {
	t.Helper()
	return compileIn(t, known(), texts...)
}

// compileIn compiles profiles for a cluster, which may have ConfigMaps too.
func compileIn(t testing.TB, cluster sidecar.Namespaces, texts ...string) *sidecar.Set {
	t.Helper()
	spec := sidecar.Spec{Namespaces: cluster}
	spec.ConfigMaps, _ = cluster.(sidecar.ConfigMaps)
	for _, text := range texts {
		spec.Profiles = append(spec.Profiles, profile(t, "test.yaml", text))
	}
	set, err := sidecar.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func toJSON(t testing.TB, text string) string {
	t.Helper()
	out, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// request returns the request to create a pod.
func request(namespace, pod string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID:       "5f4e3d2c-1b0a-4998-8776-655443322110",
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Operation: admissionv1.Create,
		Namespace: namespace,
		Object:    runtime.RawExtension{Raw: []byte(pod)},
	}}
}

// apply applies a patch as the API server does, with its library.
func apply(t testing.TB, pod string, operations []jsonpatch.Operation) string {
	t.Helper()
	if operations == nil {
		return pod
	}
	text, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := evanphx.DecodePatch(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	out, err := patch.Apply([]byte(pod))
	if err != nil {
		t.Fatalf("%s does not apply to %s: %v", text, pod, err)
	}
	return string(out)
}

// patchedBy is apply for bytes.
func patchedBy(t testing.TB, pod []byte, operations []jsonpatch.Operation) []byte {
	t.Helper()
	return []byte(apply(t, string(pod), operations))
}

// shipper returns a profile of one native sidecar and a volume, for namespaces with
// logs=shipped.
func shipper() string {
	return `
metadata: {name: log-shipper}
spec:
  match: {namespaceSelector: {matchLabels: {logs: shipped}}}
  injection: OptOut
  template:
    spec:
      initContainers:
      - name: log-shipper
        image: example/shipper:1
        restartPolicy: Always
        ports: [{containerPort: 2020}]
        startupProbe: {tcpSocket: {port: 2020}}
        volumeMounts: [{name: logs, mountPath: /logs}]
      volumes:
      - name: logs
        emptyDir: {}
`
}

// forOwned returns the Input for a pod that a workload will own.
func forOwned(namespace, pod, workload string) sidecar.Input {
	in := sidecar.ForPod(namespace, []byte(pod))
	in.Workload = workload
	return in
}

// treeOf is tree for bytes.
func treeOf(t testing.TB, text []byte) any {
	t.Helper()
	return tree(t, string(text))
}

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
