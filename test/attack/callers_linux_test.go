package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

const (
	// callTimeout is the default timeoutSeconds of a webhook.
	callTimeout = 10 * time.Second
	// callInterval is the time between two calls of a caller: 80 reviews a second in all.
	callInterval = 50 * time.Millisecond
)

// smallPod is about what a Deployment creates.
const smallPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default","labels":{"app":"web"}},
	"spec":{"serviceAccountName":"default","containers":[{"name":"app","image":"registry.example/app:1","env":[{"name":"A","value":"b"}],
	"resources":{"limits":{"memory":"64Mi"}},"ports":[{"containerPort":8080}]}]}}`

// review is an AdmissionReview about a pod. An old object makes it an update.
func review(uid, object, old string) []byte {
	return reviewOf(uid, "", "v1", "Pod", "pods", object, old)
}

// reviewOf is an AdmissionReview about an object of any kind.
func reviewOf(uid, group, version, kind, resource, object, old string) []byte {
	operation := "CREATE"
	if old != "" {
		operation, old = "UPDATE", `,"oldObject":`+old
	}
	kind = fmt.Sprintf(`{"group":%q,"version":%q,"kind":%q}`, group, version, kind)
	resource = fmt.Sprintf(`{"group":%q,"version":%q,"resource":%q}`, group, version, resource)
	return fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":%q,"kind":%[2]s,"resource":%[3]s,`+
		`"requestKind":%[2]s,"requestResource":%[3]s,"name":"web","namespace":"default","operation":%[4]q,`+
		`"userInfo":{"username":"alice"},"object":%[5]s%[6]s}}`, uid, kind, resource, operation, object, old)
}

// caller sends ordinary reviews at a modest rate, as an API server does.
type caller struct {
	name   string
	client *http.Client
	base   string

	// The rest is written by run alone.
	took     []time.Duration
	failures map[string]int
}

// callers are API servers with and without a client certificate. An API server speaks HTTP/1.1 to a Service and HTTP/2 to
// a URL with a loopback address or a name.
func (t *target) callers() []*caller {
	var all []*caller
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		for _, client := range []struct {
			name, address string
			certificates  []tls.Certificate
		}{{"certified", certifiedAddress, []tls.Certificate{t.certificate}}, {"ordinary", ordinaryAddress, nil}} {
			transport := t.transport(client.address, protocol, client.certificates...)
			all = append(all, &caller{
				name: client.name + " over " + protocol, base: "https://" + t.Reviews.String(),
				client: &http.Client{Transport: transport, Timeout: callTimeout}, failures: map[string]int{},
			})
		}
	}
	return all
}

// run makes calls until done, each in its own time, as the API server does: a slow one keeps no other waiting. It returns
// when all are answered.
func (c *caller) run(ctx context.Context, done <-chan struct{}) {
	defer c.client.CloseIdleConnections()
	var calls sync.WaitGroup
	var mu sync.Mutex
	defer calls.Wait()
	ticker := time.NewTicker(callInterval)
	defer ticker.Stop()
	for i := 0; ; i++ {
		calls.Go(func() {
			began := time.Now()
			err := c.call(ctx, i)
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			c.took = append(c.took, took)
			if err != nil {
				c.failures[err.Error()]++
			}
		})
		select {
		case <-done:
			return
		case <-ticker.C:
		}
	}
}

// call has a pod injected, or judged.
func (c *caller) call(ctx context.Context, i int) error {
	path := []string{"/mutate", "/validate"}[i%2]
	uid := fmt.Sprintf("%08d", i)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path+"?timeout="+callTimeout.String(), bytes.NewReader(review(uid, smallPod, "")))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		// Without addresses, so that equal failures are counted together.
		if under, ok := errors.AsType[*net.OpError](err); ok {
			return fmt.Errorf("%s: %s: %w", path, under.Op, under.Err)
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %d %.200s", path, response.StatusCode, bytes.TrimSpace(text))
	}
	var answer admissionv1.AdmissionReview
	err = json.Unmarshal(text, &answer)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case answer.Response == nil || string(answer.Response.UID) != uid || !answer.Response.Allowed:
		return fmt.Errorf("%s: not allowed: %.200s", path, text)
	case path == "/mutate" && len(answer.Response.Patch) == 0:
		return fmt.Errorf("%s: no patch: %.200s", path, text)
	}
	return nil
}

// percentile of what the callers' calls took.
func percentile(all []*caller, part float64) time.Duration {
	var took []time.Duration
	for _, c := range all {
		took = append(took, c.took...)
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(int(part*float64(len(took))), len(took)-1)]
}
