package incluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/kubelet"
	"github.com/gatehouse-dev/gatehouse/test/support/load"
)

// Three replicas start with 1,000 policies, 100 profiles and 10,000 namespaces, stay within their memory, and follow changes.
// How long that takes is told and not tested.
func TestLargeConfiguration(t *testing.T) {
	const (
		policies, profiles, namespaces = 1_000, 100, 10_000
		replicas                       = 3
		// mostMemory is three quarters of what the install allows a replica. How many pages of the program are in memory
		// differs from one run to the next by ten MiB and more.
		mostMemory = 192 << 20
	)
	s := newSite(t, cluster.Options{})
	_, err := s.kubectl(t.Context(), "", "apply", "--server-side", "--kustomize", "../../manifests/crds")
	must(t, err)
	_, err = s.kubectl(t.Context(), "", "wait", "--for=condition=Established", "crd", "--all", "--timeout", deadline.String())
	must(t, err)
	began := time.Now()
	s.fill(t, namespaces, "/api/v1/namespaces", func(i int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team-%d","labels":{"team":"%d"}}}`, i, i%100)
	})
	s.fill(t, policies, policyPath, func(i int) string { return largePolicy(i, "first") })
	s.fill(t, profiles, profilePath, func(i int) string { return largeProfile(i, "first") })
	t.Logf("the objects were made in %s", time.Since(began).Round(time.Second))

	documents := adjusted(t, s.kustomized(t), replicas)
	_, err = s.kubectl(t.Context(), documents, "apply", "--server-side", "--filename", "-")
	must(t, err)
	ready := map[string]time.Time{}
	support.Eventually(t, "every replica is ready", func() error {
		for _, pod := range s.kubelet.Pods() {
			if pod.Ready() && ready[pod.Name].IsZero() {
				ready[pod.Name] = time.Now()
			}
		}
		if len(ready) < replicas {
			return fmt.Errorf("%d are", len(ready))
		}
		return nil
	})
	for _, pod := range s.kubelet.Pods() {
		start, err := metric(t.Context(), pod, "process_start_time_seconds")
		must(t, err)
		t.Logf("%s was ready %s after its start; memory then: %v", pod.Name,
			ready[pod.Name].Sub(time.UnixMilli(int64(start*1000))).Round(10*time.Millisecond), memory(t, pod))
	}
	s.rolledOut(t)

	ask := s.asker(t)
	for _, change := range []struct {
		name, path string
		changed    func(mark string) string
	}{
		{"a policy", "/validate", func(mark string) string { return largePolicy(7, mark) }},
		{"a profile", "/mutate", func(mark string) string { return largeProfile(7, mark) }},
	} {
		t.Run("a change of "+change.name, func(t *testing.T) {
			var took []time.Duration
			for i := range 3 {
				mark := fmt.Sprintf("mark-%d", i)
				_, err := s.kubectl(t.Context(), change.changed(mark), "apply", "--server-side", "--force-conflicts", "--filename", "-")
				must(t, err)
				applied := time.Now()
				support.Eventually(t, "every replica uses it", func() error {
					for _, pod := range s.kubelet.Pods() {
						answer, err := ask(t.Context(), pod, change.path)
						if err != nil {
							return err
						}
						if !strings.Contains(answer, mark) {
							return fmt.Errorf("%s answers %.300q", pod.Name, answer)
						}
					}
					return nil
				})
				took = append(took, time.Since(applied).Round(time.Millisecond))
			}
			t.Logf("on all %d replicas after kubectl apply had ended: within %v", replicas, took)
		})
	}

	c := s.largeCaller(t)
	l := load.Start(t.Context(), func(ctx context.Context, _ int) error { return c(ctx) })
	t.Cleanup(func() { l.End() })
	support.Eventually(t, "enough calls are answered", func() error {
		if n := l.Calls() - l.Failed(); n < 10*load.Callers {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	l.End()
	t.Logf("%s%s", l, l.Why()) // a busy machine may need longer for a thousand policies than an API server waits
	for _, pod := range s.kubelet.Pods() {
		m := memory(t, pod)
		t.Logf("%s: memory after the load: %v", pod.Name, m)
		if m["VmRSS"] > mostMemory {
			t.Errorf("%s has %d bytes resident, want %d at most", pod.Name, m["VmRSS"], mostMemory)
		}
	}
}

const (
	policyPath  = "/apis/gatehouse.dev/v1alpha1/admissionpolicies"
	profilePath = "/apis/gatehouse.dev/v1alpha1/sidecarprofiles"
)

// largePolicy is one of many, no two of which have an expression in common. The mark is in what it says.
func largePolicy(i int, mark string) string {
	const resources = `[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]`
	return fmt.Sprintf(`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AdmissionPolicy","metadata":{"name":"policy-%[1]d"},"spec":{
		"failurePolicy":"Fail","matchConstraints":{"resourceRules":%[3]s},"validationActions":["Deny"],
		"validations":[{"expression":"(!has(object.metadata.name) || object.metadata.name != 'bad-%[1]d') && object.spec.containers.all(c, !c.image.startsWith('bad-%[1]d/'))","message":"%[2]s"}]}}`,
		i, mark, resources)
}

// largeProfile is one of many that pods ask for by name. The mark is in its image.
func largeProfile(i int, mark string) string {
	return fmt.Sprintf(`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"SidecarProfile","metadata":{"name":"profile-%[1]d"},"spec":{"template":{"spec":{
		"initContainers":[{"name":"sidecar-%[1]d","image":"sidecar:%[2]s","restartPolicy":"Always"}]}}}}`, i, mark)
}

// fill makes many objects.
func (s *site) fill(t *testing.T, n int, path string, object func(i int) string) {
	t.Helper()
	client, err := rest.HTTPClientFor(s.Config())
	must(t, err)
	const makers = 8
	errs := make([]error, makers)
	var group sync.WaitGroup
	for maker := range makers {
		group.Go(func() {
			for i := maker; i < n && errs[maker] == nil; i += makers {
				_, errs[maker] = load.Create(t.Context(), client, s.Config().Host+path, object(i))
			}
		})
	}
	group.Wait()
	must(t, errors.Join(errs...))
}

// largeCaller makes calls that every policy and a profile decide about.
func (s *site) largeCaller(t *testing.T) func(context.Context) error {
	t.Helper()
	client, err := rest.HTTPClientFor(s.Config())
	must(t, err)
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"load","annotations":{"sidecar.gatehouse.dev/inject":"profile-3"}},"spec":{"containers":[{"name":"app","image":"app"}]}}`
	check := injected("sidecar-3")
	return func(ctx context.Context) error {
		return check(load.Create(ctx, client, s.Config().Host+"/api/v1/namespaces/default/pods?dryRun=All", pod))
	}
}

// asker asks a replica itself about a pod that the policy 7 refuses and that asks for the profile 7.
func (s *site) asker(t *testing.T) func(ctx context.Context, pod *kubelet.Pod, path string) (string, error) {
	t.Helper()
	roots := x509.NewCertPool()
	for _, bundle := range s.bundles(t) {
		roots.AppendCertsFromPEM([]byte(bundle))
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: "gatehouse." + system + ".svc",
	}}}
	t.Cleanup(client.CloseIdleConnections)
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"group":"","version":"v1","kind":"Pod"},
		"resource":{"group":"","version":"v1","resource":"pods"},"requestKind":{"group":"","version":"v1","kind":"Pod"},"requestResource":{"group":"","version":"v1","resource":"pods"},
		"name":"bad-7","namespace":"default","operation":"CREATE","userInfo":{"username":"alice"},"object":{"apiVersion":"v1","kind":"Pod",
		"metadata":{"name":"bad-7","namespace":"default","annotations":{"sidecar.gatehouse.dev/inject":"profile-7"}},"spec":{"containers":[{"name":"app","image":"app"}]}}}}`
	return func(ctx context.Context, pod *kubelet.Pod, path string) (string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+pod.Reviews().String()+path, strings.NewReader(review))
		if err != nil {
			return "", err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close() //nolint:errcheck // only read
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return "", err
		}
		var answer admissionv1.AdmissionReview
		err = json.Unmarshal(text, &answer)
		if err != nil || answer.Response == nil {
			return "", fmt.Errorf("%s: got %.300q: %w", path, text, err)
		}
		if answer.Response.UID != types.UID("1") {
			return "", fmt.Errorf("%s: an answer to %q", path, answer.Response.UID)
		}
		said := string(answer.Response.Patch)
		if answer.Response.Result != nil {
			said += answer.Response.Result.Message
		}
		return said, nil
	}
}

// memory is what the kernel says of the memory of a replica, in bytes.
func memory(t *testing.T, pod *kubelet.Pod) map[string]int64 {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pod.Process().PID()), "status"))
	must(t, err)
	found := map[string]int64{}
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if !slices.Contains([]string{"VmHWM", "VmRSS", "RssAnon"}, name) {
			continue
		}
		kilobytes, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
		must(t, err)
		found[name] = kilobytes << 10
	}
	return found
}
