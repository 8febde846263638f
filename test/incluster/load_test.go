package incluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
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
