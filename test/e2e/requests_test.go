package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// apiRequest is a request to the API server, as tables in testdata have it.
type apiRequest struct {
	// Request is the method, the path with the query, and for a patch its type. A path without a slash in front is below the
	// namespace of the test.
	Request string
	// Body is the object or the patch.
	Body json.RawMessage
	// User is who asks; nil is the administrator.
	User *authenticationv1.UserInfo
}

// readTable reads a table of testdata.
func readTable(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile("testdata/" + file)
	must(t, err)
	must(t, yaml.UnmarshalStrict(content, into))
}

// readDocuments returns files of testdata as one stream of documents.
func readDocuments(t *testing.T, files ...string) string {
	t.Helper()
	var all []string
	for _, file := range files {
		content, err := os.ReadFile("testdata/" + file)
		must(t, err)
		all = append(all, string(content))
	}
	return strings.Join(all, "---\n")
}

// impersonating returns a client for a user, and the warnings that it has received.
func (w *world) impersonating(t *testing.T, user *authenticationv1.UserInfo) (kubernetes.Interface, func() []string) {
	t.Helper()
	var r recorder
	config := w.Config()
	config.WarningHandlerWithContext = &r
	if user != nil {
		config.Impersonate = rest.ImpersonationConfig{UserName: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string][]string{}}
		for key, values := range user.Extra {
			config.Impersonate.Extra[key] = values
		}
	}
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client, r.list
}

// postJSON sends a value, which may be a json.RawMessage that is no JSON, and reads the answer into another.
func postJSON(ctx context.Context, client *http.Client, url string, header http.Header, body, answer any) (int, error) {
	text, raw := body.(json.RawMessage)
	if !raw {
		var err error
		text, err = json.Marshal(body)
		if err != nil {
			return 0, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	if header != nil {
		request.Header = header
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	err = json.Unmarshal(content, answer)
	if err != nil {
		return 0, fmt.Errorf("%s: %s: %w: %s", request.URL.Path, response.Status, err, content)
	}
	return response.StatusCode, nil
}

// clientFor returns a client with the certificate of a user.
func (w *world) clientFor(t *testing.T, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	config, err := w.ConfigFor(user, groups...)
	must(t, err)
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client
}

var connectPath = regexp.MustCompile(`/(exec|attach|portforward|proxy)\b`)

// send makes the request in a namespace, as a dry run unless its effect is wanted, and returns the warnings. A connection
// that is admitted is no error, although no kubelet answers it.
func (r *apiRequest) send(t *testing.T, w *world, namespace string, effect bool) ([]string, error) {
	t.Helper()
	result, warnings, connects := r.do(t, w, namespace, effect)
	err := result.Error()
	if connects && err != nil && !strings.Contains(err.Error(), "Policy '") && !strings.Contains(err.Error(), "webhook") {
		err = nil
	}
	return warnings(), err
}

// do makes the request and returns its result, what returns the warnings, and whether it is a connection.
func (r *apiRequest) do(t *testing.T, w *world, namespace string, effect bool) (rest.Result, func() []string, bool) {
	t.Helper()
	in := func(text string) string { return strings.ReplaceAll(text, "NAMESPACE", namespace) }
	fields := append(strings.Fields(in(r.Request)), "")
	path, query, _ := strings.Cut(fields[1], "?")
	if !strings.HasPrefix(path, "/") {
		path = "/api/v1/namespaces/" + namespace + "/" + path
	}
	values, err := url.ParseQuery(query)
	must(t, err)
	connects := connectPath.MatchString(path)
	if !connects && !effect {
		values.Set("dryRun", "All")
	}
	contentType := map[string]types.PatchType{
		"": "application/json", "merge": types.MergePatchType, "strategic": types.StrategicMergePatchType, "apply": types.ApplyYAMLPatchType,
	}[fields[2]]
	client, warnings := w.impersonating(t, r.User)
	request := client.CoreV1().RESTClient().Verb(fields[0]).AbsPath(path).SetHeader("Content-Type", string(contentType))
	for name, all := range values {
		for _, value := range all {
			request.Param(name, value)
		}
	}
	if r.Body != nil {
		request.Body([]byte(strings.ReplaceAll(in(string(r.Body)), "LONG", strings.Repeat("x", 5<<10))))
	}
	return request.Do(t.Context()), warnings, connects
}
