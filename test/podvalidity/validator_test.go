package podvalidity

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// shared is an API server without the plug-ins that ask whether what a pod refers to exists.
var shared = cluster.Shared{Options: cluster.Options{APIServerFlags: []string{
	"--disable-admission-plugins=NamespaceLifecycle,ServiceAccount,Priority,RuntimeClass,PodSecurity,LimitRanger,ResourceQuota,DefaultTolerationSeconds",
}}}

func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m, shared.Stop)) }

// validator asks an API server whether it accepts pods. It is safe for concurrent use.
type validator struct {
	t      testing.TB
	client *http.Client
	host   string
}

func newValidator(t testing.TB) *validator {
	t.Helper()
	config := shared.Get(t).Config()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &validator{t, client, config.Host}
}

// Errors returns what the API server says is wrong with a pod, in JSON, when it is created: one text for each error, such as
// "spec.containers[0].name: Required value". There is none for a pod that it accepts.
func (v *validator) Errors(pod []byte) []string {
	v.t.Helper()
	var named metav1.PartialObjectMetadata
	if err := json.Unmarshal(pod, &named); err != nil {
		return []string{err.Error()}
	}
	namespace := named.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	request, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.host+"/api/v1/namespaces/"+namespace+"/pods?dryRun=All", bytes.NewReader(pod))
	if err != nil {
		v.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := v.client.Do(request)
	if err != nil {
		v.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	if response.StatusCode == http.StatusCreated {
		return nil
	}
	var status metav1.Status
	if err := json.Unmarshal(answer, &status); err != nil || status.Details == nil || len(status.Details.Causes) == 0 {
		return []string{string(answer)}
	}
	var errs []string
	for _, cause := range status.Details.Causes {
		errs = append(errs, cause.Field+": "+cause.Message)
	}
	return errs
}
