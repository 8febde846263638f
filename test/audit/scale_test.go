package audit

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

const (
	// defaultObjects is how many objects TestScale has without AUDIT_OBJECTS.
	defaultObjects = 3_000
	// scaleKinds are kinds of custom resources, besides pods, ConfigMaps, ServiceAccounts and Deployments.
	scaleKinds    = 16
	scalePolicies = 50
	// mostMemory and mostProcessorTime are for all of an audit of 100,000 objects.
	mostMemory        = 160 << 20
	mostProcessorTime = 3 * time.Minute
	// mostReports is for all reports in etcd, in bytes, of 500 namespaces with 1 % violations.
	mostReports = 2_000_000
)

// filler writes objects into etcd: an API server takes minutes for what takes etcd seconds. What it reads
// there it takes for what it has written itself.
type filler struct {
	client *http.Client
	batch  []map[string]any
	n      int
	bytes  int64
}

func newFiller(c *cluster.Cluster) *filler {
	socket := filepath.Join(c.Dir(), "etcd.sock")
	return &filler{client: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}}
}

// put adds an object of a resource: "pods", or "example.com/widgets".
func (f *filler) put(t *testing.T, resource, namespace, name string, value []byte) {
	t.Helper()
	f.bytes += int64(len(value))
	encode := base64.StdEncoding.EncodeToString
	key := "/registry/" + resource + "/" + namespace + "/" + name
	f.batch = append(f.batch, map[string]any{"requestPut": map[string]any{"key": encode([]byte(key)), "value": encode(value)}})
	if len(f.batch) == 100 {
		f.flush(t)
	}
}

func (f *filler) flush(t *testing.T) {
	t.Helper()
	if len(f.batch) == 0 {
		return
	}
	text, err := json.Marshal(map[string]any{"success": f.batch})
	must(t, err)
	f.batch = f.batch[:0]
	_, err = f.ask(t.Context(), "txn", string(text))
	must(t, err)
}

// metadata returns that of the next object. About one of a hundred has the label that policies refuse, and one of ten is large.
func (f *filler) metadata(namespaces int) metav1.ObjectMeta {
	f.n++
	meta := metav1.ObjectMeta{
		Name: fmt.Sprintf("object-%06d", f.n), Namespace: scaleNamespace(f.n % namespaces), UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", f.n)),
		CreationTimestamp: metav1.Unix(1_700_000_000, 0), Generation: 1, Labels: map[string]string{"app": "a", "team": "t" + strconv.Itoa(f.n%7)},
	}
	if f.n%101 == 0 { // in each of the namespaces
		meta.Labels["violates"] = "yes"
	}
	if f.n%10 == 5 {
		meta.Annotations = map[string]string{"example.com/large": strings.Repeat("large object ", 400+f.n%100)}
	}
	return meta
}

func scaleNamespace(i int) string { return fmt.Sprintf("scale-%03d", i) }

// fill writes objects: half of them pods, the rest of 19 kinds.
func (f *filler) fill(t *testing.T, objects, namespaces int) {
	t.Helper()
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	typed := func(resource string, meta metav1.ObjectMeta, o apiruntime.Object, apiVersion, kind string) {
		o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
		var b bytes.Buffer
		must(t, serializer.Encode(o, &b))
		f.put(t, resource, meta.Namespace, meta.Name, b.Bytes())
	}
	spec := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler", TerminationGracePeriodSeconds: new(int64(30)), SecurityContext: &corev1.PodSecurityContext{},
		Containers: []corev1.Container{{Name: "app", Image: "registry.example.com/app:1", ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile}},
	}
	for range objects / 2 {
		meta := f.metadata(namespaces)
		typed("pods", meta, &corev1.Pod{ObjectMeta: meta, Spec: spec, Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBestEffort}}, "v1", "Pod")
	}
	for i := range objects - objects/2 {
		meta := f.metadata(namespaces)
		switch kind := i % (scaleKinds + 3); kind {
		case scaleKinds:
			typed("configmaps", meta, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "b"}}, "v1", "ConfigMap")
		case scaleKinds + 1:
			typed("serviceaccounts", meta, &corev1.ServiceAccount{ObjectMeta: meta}, "v1", "ServiceAccount")
		case scaleKinds + 2:
			typed("deployments", meta, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}}, Spec: spec},
			}}, "apps/v1", "Deployment")
		default:
			text, err := json.Marshal(map[string]any{"apiVersion": "example.com/v1", "kind": fmt.Sprintf("Thing%d", kind), "metadata": meta, "spec": map[string]any{"size": i}})
			must(t, err)
			f.put(t, fmt.Sprintf("example.com/thing%ds", kind), meta.Namespace, meta.Name, text)
		}
	}
	f.flush(t)
}

// scaleConfig writes policies: one of Pod Security, and others about labels of all kinds, pods most of all.
func scaleConfig(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for i := range scalePolicies {
		match := `{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}`
		rule := fmt.Sprintf(`validations: [{expression: "object.metadata.?labels.violates.orValue('') != 'yes' || %d != 7", message: violates}, {expression: "object.spec.containers.all(c, !c.image.endsWith(':latest') || c.name == 'x%d')", message: latest}]`, i, i)
		switch {
		case i == 0:
			rule = "podSecurity: {level: baseline, version: v1.37}"
		case i%5 == 3:
			match = `{apiGroups: ["", apps, example.com], apiVersions: ["*"], operations: [CREATE], resources: ["*"]}`
			rule = fmt.Sprintf("variables: [{name: labels, expression: \"object.metadata.?labels.orValue({})\"}]\n  validations: [{expression: \"!('violates' in variables.labels) || %d != 8\", messageExpression: \"object.metadata.name + ' violates'\"}, {expression: \"request.userInfo.username != 'x'\"}]", i)
		case i%5 == 4:
			match = fmt.Sprintf(`{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [thing%ds]}`, i%scaleKinds)
			rule = `validations: [{expression: "object.spec.size >= 0", message: negative}]`
		}
		fmt.Fprintf(&b, "---\napiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: policy-%02d}\nspec:\n  matchConstraints: {resourceRules: [%s]}\n  validationActions: [Deny]\n  %s\n", i, match, rule)
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "policies.yaml"), []byte(b.String()), 0o600))
	return dir
}

// TestScale audits many objects, and measures what that costs. AUDIT_OBJECTS=100000 is the size that the bounds are for.
func TestScale(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc")
	}
	objects := defaultObjects
	if text := os.Getenv("AUDIT_OBJECTS"); text != "" {
		var err error
		objects, err = strconv.Atoi(text)
		must(t, err)
	}
	c := cluster.New(t, cluster.Options{})
	var definitions strings.Builder
	for i := range scaleKinds {
		fmt.Fprintf(&definitions, `---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: thing%[1]ds.example.com}, spec: {group: example.com, names: {kind: Thing%[1]d, plural: thing%[1]ds}, scope: Namespaced,
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
`, i)
	}
	apply(t, c, definitions.String())
	namespaces := min(500, max(5, objects/200))
	creator := newCreator(t, c.Config())
	for i := range namespaces {
		creator.add([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + scaleNamespace(i) + `"}}`))
	}
	creator.close(t)
	f := newFiller(c)
	f.fill(t, objects, namespaces)
	support.Eventually(t, "the API server has the objects", func() error {
		text, err := kubectl(t, c, "", "get", "--raw", "/apis/example.com/v1/thing15s?limit=1")
		if err != nil || !strings.Contains(text, "object-") {
			return fmt.Errorf("%w: %.200s", err, text)
		}
		return nil
	})

	server := c.APIServer().PID()
	before := memoryOf(t, server)["VmRSS"]
	resetPeak(t, server)
	config, access := scaleConfig(t), kubeconfig(t, c.Config())
	binary, err := gatehouse.Binary()
	must(t, err)
	command := exec.CommandContext(t.Context(), binary, "audit", "--kubeconfig", access, "--config", config, "-o", "json")
	var out, messages bytes.Buffer
	command.Stdout, command.Stderr = &out, &messages
	began := time.Now()
	must(t, command.Start())
	peak := watchMemory(command.Process.Pid)
	err = command.Wait()
	took := time.Since(began)
	if command.ProcessState.ExitCode() != 1 {
		t.Fatalf("%v: %s", err, messages.String())
	}
	after := memoryOf(t, server)
	var r struct {
		Complete bool
		Coverage []struct {
			Resource string
			Objects  int64
			Complete bool
		}
	}
	must(t, json.Unmarshal(out.Bytes(), &r))
	read := int64(0)
	for _, coverage := range r.Coverage {
		read += coverage.Objects
		if !coverage.Complete {
			t.Errorf("%s is not complete: %+v", coverage.Resource, coverage)
		}
	}
	if !r.Complete || read < int64(objects) {
		t.Errorf("complete %t, %d objects of %d", r.Complete, read, objects)
	}
	processor := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	resident, anonymous := (<-peak).values()
	t.Logf("%d objects (%d MB in etcd) in %d namespaces, %d policies: %s, %s of processor time, %.0f MiB resident at most (%.0f MiB without files), API server %.0f MiB before, %.0f at most, %.0f after",
		read, f.bytes/1e6, namespaces, scalePolicies, took.Round(time.Millisecond), processor.Round(time.Millisecond), mebibytes(resident), mebibytes(anonymous),
		mebibytes(before), mebibytes(after["VmHWM"]), mebibytes(after["VmRSS"]))
	if resident > mostMemory {
		t.Errorf("it has %.0f MiB resident, want %d at most", mebibytes(resident), mostMemory>>20)
	}
	if bound := time.Duration(math.Max(0.2, float64(objects)/100_000) * float64(mostProcessorTime)); processor > bound {
		t.Errorf("it took %s of processor time, want %s at most", processor, bound)
	}
	inBackground(t, c, f, filepath.Join(config, "policies.yaml"), access)
}

// inBackground has a server audit the same objects by the same policies, twice, while it answers reviews.
func inBackground(t *testing.T, c *cluster.Cluster, f *filler, policies, access string) {
	t.Helper()
	definitions, err := gatehouse.Run(t.Context(), "manifests", "--crds")
	must(t, err)
	apply(t, c, definitions)
	apply(t, c, reportDefinitions(t))
	must(t, c.CreateNamespace(t.Context(), "gatehouse-system", nil))
	support.Eventually(t, "the policies are applied", func() error {
		text, err := kubectl(t, c, "", "apply", "--server-side", "-f", policies)
		if err != nil {
			err = fmt.Errorf("%w: %.500s", err, text)
		}
		return err
	})
	s, err := gatehouse.Start(t.Context(), filepath.Join(t.TempDir(), "log"),
		"--custom-resources", "--kubeconfig", access, "--replica", "a", "--self-signed", "127.0.0.1", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
		"--drain-delay", "0s", "--audit-every", "1m")
	must(t, err)
	t.Cleanup(s.Kill)
	r := newReviewer(s, reviewedPod)
	// The audit begins seconds after the election.
	times := latencies(t, r, func() bool { return true })
	first := latencies(t, r, func() bool { return auditMetric(t, s, "gatehouse_audit_runs_total", "outcome", "published") >= 1 })
	written := auditMetric(t, s, "gatehouse_audit_report_writes_total", "outcome", "written")
	took := auditMetric(t, s, "gatehouse_audit_duration_seconds")
	second := latencies(t, r, func() bool { return auditMetric(t, s, "gatehouse_audit_runs_total", "outcome", "published") >= 2 })
	if again := auditMetric(t, s, "gatehouse_audit_report_writes_total", "outcome", "written"); written == 0 || again != written {
		t.Errorf("the first audit wrote %v reports, and the second, of the same objects, %v", written, again-written)
	}
	peak := memoryOf(t, s.PID())["VmHWM"]
	reports, bytes := f.stored(t, "/registry/openreports.io/")
	t.Logf("in the background: %.0f s, %d reports of %d KB in etcd, %.0f MiB resident at most; a review takes %s (p99) without an audit, %s during the first and %s during the second",
		took, reports, bytes/1000, mebibytes(peak), p99(times), p99(first), p99(second))
	if peak > mostMemory {
		t.Errorf("it has %.0f MiB resident, want %d at most", mebibytes(peak), mostMemory>>20)
	}
	if bytes == 0 || bytes > mostReports {
		t.Errorf("the reports have %d bytes in etcd, want %d at most", bytes, mostReports)
	}
}

// reviewedPod is a pod as a review has it, of 5 KB.
var reviewedPod = `"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
	`"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"asked","namespace":"scale-001","annotations":{"example.com/large":"` + strings.Repeat("large object ", 350) + `"}},"spec":{"containers":[{"name":"app","image":"registry.example.com/app:1"}]}}`

func auditMetric(t *testing.T, s *gatehouse.Server, name string, labels ...string) float64 {
	t.Helper()
	value, err := s.Metric(t.Context(), name, labels...)
	must(t, err)
	return value
}

// latencies asks for reviews, fifty a second and at least five hundred, until a condition holds, and returns how long each took.
func latencies(t *testing.T, r *reviewer, until func() bool) []time.Duration {
	t.Helper()
	var all []time.Duration
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Minute); len(all) < 500 || len(all)%50 != 0 || !until(); {
		<-tick.C
		began := time.Now()
		must(t, r.ask(t.Context()))
		all = append(all, time.Since(began))
		if began.After(deadline) {
			t.Fatal("the audit does not end")
		}
	}
	return all
}

func p99(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)*99/100].Round(10 * time.Microsecond)
}

// stored returns the number of objects below a key of etcd, and their size.
func (f *filler) stored(t *testing.T, prefix string) (objects int, bytes int64) {
	t.Helper()
	encode := base64.StdEncoding.EncodeToString
	end := []byte(prefix)
	end[len(end)-1]++
	text, err := f.ask(t.Context(), "range", fmt.Sprintf(`{"key":%q,"range_end":%q}`, encode([]byte(prefix)), encode(end)))
	must(t, err)
	var is struct{ Kvs []struct{ Value []byte } }
	must(t, json.Unmarshal(text, &is))
	for _, kv := range is.Kvs {
		bytes += int64(len(kv.Value))
	}
	return len(is.Kvs), bytes
}

// ask asks etcd for something about keys.
func (f *filler) ask(ctx context.Context, what, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/kv/"+what, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := f.client.Do(request)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(response.Body)
	err = errors.Join(err, response.Body.Close())
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("etcd: %s: %s", response.Status, text)
	}
	return text, err
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// memoryOf returns the sizes in bytes of /proc/PID/status, nil if there is no such process.
func memoryOf(t *testing.T, pid int) map[string]int64 {
	t.Helper()
	sizes := readMemory(pid)
	if sizes == nil {
		t.Fatalf("no process %d", pid)
	}
	return sizes
}

func readMemory(pid int) map[string]int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	sizes := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[2] == "kB" {
			size, _ := strconv.ParseInt(fields[1], 10, 64)
			sizes[strings.TrimSuffix(fields[0], ":")] = size << 10
		}
	}
	return sizes
}

// resetPeak makes VmHWM begin again.
func resetPeak(t *testing.T, pid int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Logf("the peak is that since the start: %v", err)
	}
}

// peakMemory is the most memory that a process had.
type peakMemory struct{ resident, anonymous int64 }

func (p peakMemory) values() (resident, anonymous int64) { return p.resident, p.anonymous }

// watchMemory reads the memory of a process until it ends.
func watchMemory(pid int) <-chan peakMemory {
	out := make(chan peakMemory, 1)
	go func() {
		var peak peakMemory
		for {
			sizes := readMemory(pid)
			if sizes["VmRSS"] == 0 {
				out <- peak
				return
			}
			peak.resident = max(peak.resident, sizes["VmHWM"])
			peak.anonymous = max(peak.anonymous, sizes["RssAnon"])
			<-time.After(20 * time.Millisecond)
		}
	}()
	return out
}
