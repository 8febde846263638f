package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

const podsAndSecrets = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: RequestResponse, users: [kubernetes-admin], resources: [{group: "", resources: [secrets, pods]}]}
- {level: None}
`

// TestAuditLog imports the audit log of a real API server as a recording.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy, log, file := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log"), filepath.Join(dir, "audit.gatehouse.zst")
	if err := os.WriteFile(policy, []byte(podsAndSecrets), 0o600); err != nil {
		t.Fatal(err)
	}
	c := cluster.New(t, cluster.Options{APIServerFlags: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-mode=blocking"}})
	namespace := c.NewNamespace(t, nil)
	// The administrator acts as joe, as people do with kubectl --as.
	access := c.Config()
	access.Impersonate.UserName, access.Impersonate.Groups = "joe", []string{"system:masters"}
	joe, err := kubernetes.NewForConfig(access)
	if err != nil {
		t.Fatal(err)
	}
	secrets, pods := joe.CoreV1().Secrets(namespace), joe.CoreV1().Pods(namespace)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db"}, StringData: map[string]string{"password": "hunter2hunter2"}}
	created, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	created.Labels = map[string]string{"a": "b"}
	_, err = secrets.Update(t.Context(), created, metav1.UpdateOptions{})
	check(err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "cart-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c", Env: []corev1.EnvVar{{Name: "A", Value: "hunter2hunter2"}}}}}}
	running, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	check(err)
	_, err = pods.Patch(t.Context(), running.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	check(err)
	_, err = pods.List(t.Context(), metav1.ListOptions{})
	check(err)
	check(pods.Delete(t.Context(), running.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	text, err := os.ReadFile(log)
	check(err)
	if !strings.Contains(string(text), "hunter2hunter2") {
		t.Fatal("the log has no secret, so that nothing would be tested")
	}

	binary, err := gatehouse.Binary()
	check(err)
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), binary, args...).Output()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	summary := run("record", "import", log, "-f", file)
	if !strings.Contains(summary, ": 5 reviews of 6 events") {
		t.Errorf("import prints\n%s", summary)
	}
	var got []string
	shown := run("record", "show", file, "--full", "-o", "ndjson")
	for line := range strings.Lines(shown) {
		var r struct {
			Operation, Kind, Namespace, Name, User string
			Redacted                               bool
			Request                                struct {
				Request struct{ Object, OldObject map[string]any }
			}
		}
		check(json.Unmarshal([]byte(line), &r))
		parts := []string{r.Operation, r.Kind, r.User}
		if r.Request.Request.Object != nil {
			parts = append(parts, "object")
		}
		if r.Request.Request.OldObject != nil {
			parts = append(parts, "oldObject")
		}
		if r.Namespace != namespace || r.Name == "" {
			t.Errorf("%s/%s, want a name in %s", r.Namespace, r.Name, namespace)
		}
		got = append(got, strings.Join(parts, " "))
	}
	want := []string{"CREATE Secret joe object", "UPDATE Secret joe object oldObject", "CREATE Pod joe object", "UPDATE Pod joe object oldObject", "DELETE Pod joe oldObject"}
	if !slices.Equal(got, want) {
		t.Errorf("reviews %q, want %q", got, want)
	}
	for _, secret := range []string{"hunter2hunter2", "aHVudGVyMmh1bnRlcjI"} {
		if strings.Contains(shown, secret) {
			t.Errorf("the recording has a secret: %s", shown)
		}
	}
}
