package incluster

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/test/support/kubelet"
	"github.com/gatehouse-dev/gatehouse/test/support/load"
)

const (
	// shop is a namespace whose pods ask for a sidecar, or have none, and mall is one whose pods have one without asking.
	shop, mall = "shop", "mall"
	// refusal is what the policy of the shop says.
	refusal = "no more than five replicas"
)

// workloadPolicies are the custom resources that the calls of a load are about.
var workloadPolicies = profile("logs") + `
---
apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: always}
spec:
  injection: OptOut
  match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ` + mall + `}}}
  template: {spec: {initContainers: [{name: always, image: sidecar, restartPolicy: Always}]}}
---
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: replicas}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
  validationActions: [Deny]
  validations: [{expression: object.spec.replicas <= 5, message: ` + refusal + `}]
`

// request is one call of a load, and what must come of it.
type request struct {
	name, path, object string
	check              func(answer []byte, err error) error
}

// requests go to every webhook that decides about workloads: to that of pods that ask, which fails closed, to that of pods
// that do not, and to the validating one, with a yes and with a no of a policy.
func requests() []request {
	const containers = `{"containers":[{"name":"app","image":"app"}]}`
	pod := func(annotations string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"load","annotations":` + annotations + `},"spec":` + containers + `}`
	}
	deployment := func(replicas int) string {
		return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"load"},"spec":{"replicas":%d,`+
			`"selector":{"matchLabels":{"app":"load"}},"template":{"metadata":{"labels":{"app":"load"}},"spec":%s}}}`, replicas, containers)
	}
	return []request{
		{"a pod that asks", "/api/v1/namespaces/" + shop + "/pods", pod(`{"sidecar.gatehouse.dev/inject":"logs"}`), injected("logs")},
		{"a pod that does not ask", "/api/v1/namespaces/" + mall + "/pods", pod(`{}`), injected("always")},
		{"a deployment that is allowed", "/apis/apps/v1/namespaces/" + shop + "/deployments", deployment(5), injected()},
		{"a deployment that is not", "/apis/apps/v1/namespaces/" + shop + "/deployments", deployment(6), refused},
	}
}

// injected wants the object to be created with exactly these sidecars.
func injected(want ...string) func([]byte, error) error {
	return func(answer []byte, err error) error {
		if err != nil {
			return err
		}
		var object struct {
			Spec struct{ InitContainers []struct{ Name string } }
		}
		err = json.Unmarshal(answer, &object)
		if err != nil {
			return err
		}
		var got []string
		for _, container := range object.Spec.InitContainers {
			got = append(got, container.Name)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("it was created with the sidecars %q, want %q", got, want)
		}
		return nil
	}
}

// refused wants a refusal that the policy decided on.
func refused(_ []byte, err error) error {
	switch {
	case err == nil:
		return errors.New("the policy let it pass")
	case strings.Contains(err.Error(), refusal):
		return nil
	default:
		return err
	}
}

// createWorkloads makes what a load is about, and waits until every replica uses it.
func (s *site) createWorkloads(t *testing.T) {
	t.Helper()
	for _, namespace := range []string{shop, mall} {
		must(t, s.CreateNamespace(t.Context(), namespace, nil))
	}
	must(t, s.apply(t.Context(), workloadPolicies))
	s.waitUntilAnswered(t)
}

// waitUntilAnswered waits until so many calls in a row come to what they must that every replica has answered some.
func (s *site) waitUntilAnswered(t *testing.T) {
	t.Helper()
	c := s.caller(t)
	support.Eventually(t, "everything is answered as it must be", func() error {
		const rounds = 15
		for range rounds {
			for i := range c.requests {
				err := c.call(t.Context(), i)
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// caller makes calls one by one.
type caller struct {
	client   *http.Client
	host     string
	requests []request
}

func (s *site) caller(t *testing.T) *caller {
	t.Helper()
	client, err := rest.HTTPClientFor(s.Config())
	must(t, err)
	client.Timeout = deadline
	return &caller{client: client, host: s.Config().Host, requests: requests()}
}

// call makes one call. None leaves a trace in the cluster.
func (c *caller) call(ctx context.Context, number int) error {
	e := &c.requests[number%len(c.requests)]
	err := e.check(load.Create(ctx, c.client, c.host+e.path+"?dryRun=All", e.object))
	if err != nil {
		return fmt.Errorf("%s: %s", e.name, ports.ReplaceAllString(err.Error(), "$1"))
	}
	return nil
}

// ports are what makes every error of a connection another text.
var ports = regexp.MustCompile(`((?:read|write) tcp )\S+->`)

// traffic is calls without an end, and what is seen meanwhile.
type traffic struct {
	*load.Load
	site *site
	// failedOpen is what the API server had let pass unanswered when the calls began.
	failedOpen float64

	watching context.CancelFunc
	watched  sync.WaitGroup

	mu sync.Mutex
	// pods are those that were there, and answered how many reviews each has answered, by name.
	pods     map[string]*kubelet.Pod
	answered map[string]float64
	// connections are those to replicas, and earlier are those that were there before.
	connections, earlier map[string]bool
}

// traffic begins to make calls. It ends with the test.
func (s *site) traffic(t *testing.T) *traffic {
	t.Helper()
	l := &traffic{
		site: s, failedOpen: s.failedOpen(t), pods: map[string]*kubelet.Pod{}, answered: map[string]float64{}, connections: map[string]bool{},
	}
	var err error
	l.earlier, err = connections(s.kubelet)
	must(t, err)
	var ctx context.Context
	ctx, l.watching = context.WithCancel(context.WithoutCancel(t.Context()))
	l.watched.Go(func() { l.watch(ctx) })
	c := s.caller(t)
	callers := make([]int, load.Callers)
	l.Load = load.Start(t.Context(), func(ctx context.Context, caller int) error {
		callers[caller]++ // each has its own
		return c.call(ctx, caller+callers[caller])
	})
	t.Cleanup(l.end)
	return l
}

// end stops the calls. Ending twice is harmless.
func (l *traffic) end() {
	l.End()
	l.watching()
	l.watched.Wait()
}

// watch observes the replicas and at the connections to them while there are calls.
func (l *traffic) watch(ctx context.Context) {
	const pause = 500 * time.Millisecond // a connection is seen for a minute after its end, and a replica drains for several seconds
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		l.observe(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *traffic) observe(ctx context.Context) {
	found, err := connections(l.site.kubelet)
	if err == nil {
		l.mu.Lock()
		for c := range found {
			l.connections[c] = true
		}
		l.mu.Unlock()
	}
	for _, p := range l.site.kubelet.Pods() {
		n, err := metric(ctx, p, "gatehouse_reviews_total")
		l.mu.Lock()
		l.pods[p.Name] = p
		if err == nil { // one that begins or ends does not answer
			l.answered[p.Name] = n
		}
		l.mu.Unlock()
	}
}

// more waits until n more calls have been made.
func (l *traffic) more(t *testing.T, n int64) {
	t.Helper()
	target := l.Calls() + n
	support.Eventually(t, fmt.Sprintf("%d more calls", n), func() error {
		if missing := target - l.Calls(); missing > 0 {
			return fmt.Errorf("%d are missing", missing)
		}
		return nil
	})
}

// noneFailed ends the calls. There must have been enough of them, over enough connections, none may have failed, and no
// replica may have been left out or have ended by itself.
func (l *traffic) noneFailed(t *testing.T, least int64) {
	t.Helper()
	if missing := least - l.Calls(); missing > 0 {
		l.more(t, missing)
	}
	l.end()
	l.observe(t.Context()) // what the last ones answered
	made := l.made()
	t.Logf("%s; %d connections; answered: %v", l.Load, made, l.answered)
	if l.Failed() > 0 {
		t.Errorf("%d of %d calls failed: %s", l.Failed(), l.Calls(), l.Why())
	}
	if n := l.site.failedOpen(t) - l.failedOpen; n > 0 {
		t.Errorf("the API server let %.0f requests pass because Gatehouse did not answer", n)
	}
	// That no call failed means something only if calls needed new connections all the time.
	const plenty = 250
	if least := min(int(l.Calls()/100), plenty); made < least {
		t.Errorf("there were %d connections for %d calls, want %d at least", made, l.Calls(), least)
	}
	const share = 50
	for name, pod := range l.pods {
		if n := l.answered[name]; n < share {
			t.Errorf("the replica %s answered %.0f reviews, want %d at least", name, n, share)
		}
		if n := pod.Restarts(); n > 0 {
			t.Errorf("the replica %s was started again %d times", name, n)
		}
	}
}

// made is how many connections to replicas were made.
func (l *traffic) made() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for c := range l.connections {
		if !l.earlier[c] {
			n++
		}
	}
	return n
}

// failedOpen is how many requests the API server has let pass because a webhook that fails open did not answer.
func (s *site) failedOpen(t *testing.T) float64 {
	t.Helper()
	text, err := s.Client().CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	n, err := gatehouse.Sum(string(text), "apiserver_admission_webhook_fail_open_count")
	must(t, err)
	return n
}

// metric is the sum of a metric's samples in a replica.
func metric(ctx context.Context, pod *kubelet.Pod, name string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, pod.Ops("/metrics"), http.NoBody)
	if err != nil {
		return 0, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	return gatehouse.Sum(string(text), name)
}

// connections returns those that the kernel knows of to the port for reviews of the pods of a kubelet: those that are open,
// and for a minute those that have been closed. Each is named by its two ends.
func connections(k *kubelet.Kubelet) (map[string]bool, error) {
	content, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		return nil, err
	}
	isReviews := func(end string) bool {
		address, isPort := strings.CutSuffix(end, ":24E3") // 9443
		raw, err := hex.DecodeString(address)
		return isPort && err == nil && len(raw) == 4 && k.Owns(netip.AddrFrom4([4]byte{raw[3], raw[2], raw[1], raw[0]}))
	}
	found := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		local, remote := fields[1], fields[2]
		switch {
		case isReviews(remote):
			found[local+" "+remote] = true
		case isReviews(local) && !strings.HasSuffix(remote, ":0000"):
			found[remote+" "+local] = true
		}
	}
	return found, nil
}
