package auditlog_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/auditlog"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// event returns an event with these members beside the usual ones, which they replace.
func event(members string) string {
	usual := map[string]string{
		"auditID": `"1"`, "stage": `"ResponseComplete"`, "level": `"RequestResponse"`, "verb": `"create"`, "requestURI": `"/api/v1/namespaces/shop/pods"`,
		"user": `{"username":"joe","groups":["dev"],"extra":{"k":["hunter2hunter2"]}}`, "objectRef": `{"resource":"pods","namespace":"shop","name":"cart","apiVersion":"v1"}`,
		"responseStatus": `{"code":201}`, "requestReceivedTimestamp": `"2026-11-20T12:00:00.000001Z"`,
	}
	text := `{"kind":"Event","apiVersion":"audit.k8s.io/v1"`
	if members != "" {
		text += "," + members
	}
	for _, name := range []string{"auditID", "stage", "level", "verb", "requestURI", "user", "objectRef", "responseStatus", "requestReceivedTimestamp"} {
		if !strings.Contains(members, `"`+name+`":`) {
			text += `,"` + name + `":` + usual[name]
		}
	}
	return text + "}\n"
}

const (
	sent     = `"requestObject":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"cart","namespace":"shop"}}`
	stored   = `"responseObject":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"cart","namespace":"shop","uid":"u"},"spec":{"containers":[{"name":"c","env":[{"name":"A","value":"hunter2hunter2"}]}]}}`
	statusOf = `"responseObject":{"apiVersion":"v1","kind":"Status","status":"Success"}`
)

func newImporter(t testing.TB, out io.Writer) *auditlog.Importer {
	t.Helper()
	redactor, err := record.NewRedactor(bytes.Repeat([]byte{1}, record.MinKey), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": "example.com", "scope": "Namespaced", "names": map[string]any{"kind": "Widget", "plural": "widgets"}, "versions": []any{map[string]any{"name": "v1"}},
	}}}
	m, err := auditlog.New(out, redactor, request.NewResources([]*unstructured.Unstructured{crd}), time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// imported imports a log, and returns each review as "operation kind namespace/name subresource user
// object old", with what was skipped.
func imported(t *testing.T, log io.Reader) (reviews []string, skipped map[string]int64, err error) {
	t.Helper()
	var out bytes.Buffer
	m := newImporter(t, &out)
	err = m.Read(t.Context(), log)
	result, failed := m.Close()
	if failed != nil {
		t.Fatal(failed)
	}
	r, failed := record.NewReader(bytes.NewReader(out.Bytes()))
	if failed != nil {
		t.Fatal(failed)
	}
	defer r.Close()
	for {
		one, failed := r.Next()
		if errors.Is(failed, io.EOF) {
			break
		}
		if failed != nil {
			t.Fatal(failed)
		}
		if strings.Contains(string(one.Request), "hunter2") || !one.Redacted {
			t.Errorf("a secret: %s", one.Request)
		}
		if one.Decision != "" || one.Response != nil || one.Lookups != nil || one.Endpoint != "validate" {
			t.Errorf("%+v", one)
		}
		v := rawjson.Value(one.Request).Get("request")
		what := func(name string) string {
			switch object := v.Get(name); {
			case object.Kind() != rawjson.Object:
				return "-"
			case object.Get("metadata", "uid").Text() != "":
				return "stored"
			case object.Get("metadata").Kind() == rawjson.Object:
				return "sent"
			default:
				return string(object)
			}
		}
		text := fmt.Sprintf("%s %s %s/%s %s %s %s %s", v.Get("operation").Text(), v.Get("kind", "kind").Text(), v.Get("namespace").Text(), v.Get("name").Text(), v.Get("subResource").Text(), v.Get("userInfo", "username").Text(), what("object"), what("oldObject"))
		if v.Get("dryRun").IsTrue() {
			text += " dry run"
		}
		reviews = append(reviews, strings.Join(strings.Fields(text), " "))
	}
	if int64(len(reviews)) != result.Reviews || r.Header().Source != record.FromAuditLog || len(r.Header().Missing) == 0 {
		t.Errorf("%d reviews, %+v, %+v", len(reviews), result, r.Header())
	}
	return reviews, result.Skipped, err
}

func TestRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, log string
		// want are the reviews, and skipped the reason of those that are none.
		want, skipped string
	}{
		{"create of level Request", event(`"level":"Request",` + sent), "CREATE Pod shop/cart joe sent -", ""},
		{"create of level RequestResponse", event(sent + "," + stored), "CREATE Pod shop/cart joe stored -", ""},
		{"without a name in the URL", event(`"objectRef":{"resource":"pods","namespace":"shop","apiVersion":"v1"},` + sent), "CREATE Pod shop/cart joe sent -", ""},
		{"update without the object before", event(`"verb":"update",` + sent + "," + stored), "UPDATE Pod shop/cart joe stored -", ""},
		{"update after a create", event(sent+","+stored) + event(`"verb":"update",`+sent+","+stored), "CREATE Pod shop/cart joe stored -; UPDATE Pod shop/cart joe stored stored", ""},
		{"update after a change that is not in the log", event(sent+","+stored) + event(`"verb":"update","level":"Metadata"`) + event(`"verb":"update",`+sent+","+stored), "CREATE Pod shop/cart joe stored -; UPDATE Pod shop/cart joe stored -", "level Metadata: the log lacks the object"},
		{"patch of level RequestResponse", event(`"verb":"patch","requestObject":{"spec":{}},` + stored), "UPDATE Pod shop/cart joe stored -", ""},
		{"patch of level Request", event(`"verb":"patch","level":"Request","requestObject":{"spec":{}}`), "", "patches of level Request: the log lacks the object"},
		{"delete", event(`"verb":"delete","requestObject":{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]},` + stored), "DELETE Pod shop/cart joe - stored dry run", ""},
		{"delete of an object that is not known", event(`"verb":"delete",` + statusOf), "DELETE Pod shop/cart joe - -", ""},
		{"exec", event(`"verb":"get","level":"Metadata","responseStatus":{"code":101},"objectRef":{"resource":"pods","namespace":"shop","name":"cart","apiVersion":"v1","subresource":"exec"},"requestURI":"/api/v1/namespaces/shop/pods/cart/exec?command=sh&stdin=true"`), `CONNECT PodExecOptions shop/cart exec joe {"apiVersion":"v1","command":["sh"],"kind":"PodExecOptions","stdin":true} -`, ""},
		{"port-forward", event(`"level":"Metadata","objectRef":{"resource":"pods","namespace":"shop","name":"cart","apiVersion":"v1","subresource":"portforward"},"requestURI":"/x?ports=80&ports=x"`), `CONNECT PodPortForwardOptions shop/cart portforward joe {"apiVersion":"v1","kind":"PodPortForwardOptions","ports":[80]} -`, ""},
		{"proxy", event(`"verb":"get","level":"Metadata","objectRef":{"resource":"pods","namespace":"shop","name":"cart","apiVersion":"v1","subresource":"proxy"},"requestURI":"/api/v1/namespaces/shop/pods/cart/proxy/metrics"`), `CONNECT PodProxyOptions shop/cart proxy joe {"apiVersion":"v1","kind":"PodProxyOptions","path":"/metrics"} -`, ""},
		{"dry run", event(`"requestURI":"/api/v1/namespaces/shop/pods?dryRun=All",` + sent), "CREATE Pod shop/cart joe sent - dry run", ""},
		{"impersonated user", event(`"user":{"username":"admin"},"impersonatedUser":{"username":"ann","extra":{"k":["hunter2hunter2"]}},` + sent), "CREATE Pod shop/cart ann sent -", ""},
		{"custom resource without its kind", event(`"objectRef":{"resource":"widgets","apiGroup":"example.com","apiVersion":"v1","namespace":"shop","name":"w"},"requestObject":{"metadata":{}}`), "CREATE Widget shop/w joe sent -", ""},
		{"list of events", `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + strings.TrimSpace(event(sent)) + "," + strings.Replace(strings.TrimSpace(event(sent)), `"kind":"Event","apiVersion":"audit.k8s.io/v1",`, "", 1) + "]}\n", "CREATE Pod shop/cart joe sent -; CREATE Pod shop/cart joe sent -", ""},
		{"unknown kind", event(`"objectRef":{"resource":"gadgets","apiGroup":"example.com","apiVersion":"v1"},"requestObject":{"metadata":{}}`), "", "the kind is unknown (hint: its CustomResourceDefinition in --config)"},
		{"no object", event(""), "", "the log lacks the object"},
		{"another stage", event(`"stage":"RequestReceived"`), "", "another stage of a request"},
		{"read", event(`"verb":"list"`), "", "reads: get, list and watch"},
		{"failed", event(`"responseStatus":{"code":409},` + sent), "", "failed: the API server answered with an error"},
		{"collection", event(`"verb":"deletecollection"`), "", "deletecollection: the log lacks the objects"},
		{"no resource", event(`"objectRef":null`), "", "not about a resource"},
		{"token request", event(`"objectRef":{"resource":"serviceaccounts","subresource":"token","apiVersion":"v1"},"requestObject":{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"},"responseObject":{"status":{"token":"hunter2"}}`), "", "credentials: requests for tokens and reviews of tokens"},
		{"token review", event(`"objectRef":{"resource":"tokenreviews","apiGroup":"authentication.k8s.io","apiVersion":"v1"},"requestObject":{"spec":{"token":"hunter2"}}`), "", "credentials: requests for tokens and reviews of tokens"},
		{"empty lines and no end of the last", "\n\n" + strings.TrimSpace(event(sent)), "CREATE Pod shop/cart joe sent -", ""},
		{"empty", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var zipped bytes.Buffer
			w := gzip.NewWriter(&zipped)
			_, _ = io.WriteString(w, tt.log)
			_ = w.Close()
			for _, log := range []io.Reader{strings.NewReader(tt.log), &zipped} {
				reviews, skipped, err := imported(t, log)
				if got := strings.Join(reviews, "; "); got != tt.want || err != nil {
					t.Errorf("got\n%s\nwant\n%s\n%v", got, tt.want, err)
				}
				if tt.skipped == "" && len(skipped) > 0 || tt.skipped != "" && skipped[tt.skipped] != 1 {
					t.Errorf("skipped %v, want %s", skipped, tt.skipped)
				}
			}
		})
	}
}

// TestReadHostile reads what is no audit log, or not to its end.
func TestReadHostile(t *testing.T) {
	t.Parallel()
	good := event(sent)
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(w, strings.Repeat(good, 1000))
	_ = w.Close()
	for _, tt := range []struct {
		name, log, want string
		reviews         int
	}{
		{"text", "hello\n" + good, "line 1: is no JSON", 0},
		{"another kind", `{"kind":"Pod","apiVersion":"v1"}` + "\n" + good, `line 1: is no audit event: it has kind "Pod" and apiVersion "v1"`, 0},
		{"an old version", strings.Replace(good, "audit.k8s.io/v1", "audit.k8s.io/v1beta1", 1), "is no audit event", 0},
		{"no time", event(`"requestReceivedTimestamp":"now"`), "is no time", 0},
		{"array", "[]\n", "line 1: is ", 0},
		{"lines in between", good + "oops\n\x1b[31m\n" + good, "line 2: is no JSON: ", 2},
		{"cut off", good + good[:len(good)/2], "line 2: is no JSON", 1},
		{"cut off with gzip", zipped.String()[:zipped.Len()-20], "the log ends here: unexpected EOF", -1},
		{"damaged gzip", "\x1f\x8bgarbage", "is damaged", 0},
		{"endless line", good + strings.Repeat(" ", 9<<20), "line 2: is longer than", 1},
		{"deep nesting", good + `{"kind":` + strings.Repeat("[", 20_000) + "\n", "line 2: is no JSON", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			reviews, _, err := imported(t, strings.NewReader(tt.log))
			if err == nil || !strings.Contains(err.Error(), tt.want) || tt.reviews >= 0 && len(reviews) != tt.reviews {
				t.Errorf("%d reviews, %v; want %d, %s", len(reviews), err, tt.reviews, tt.want)
			}
		})
	}
}

func TestReadEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newImporter(t, io.Discard).Read(ctx, strings.NewReader(strings.Repeat(event(sent), 1000))); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// FuzzRead reads anything. What is written is a recording, in which nothing of a token is.
func FuzzRead(f *testing.F) {
	f.Add([]byte(event(sent + "," + stored)))
	f.Add([]byte(event(`"verb":"get","objectRef":{"resource":"pods","subresource":"proxy","apiVersion":"v1"},"requestURI":"/api/v1/namespaces/a/pods/b/proxy/x"`)))
	f.Add([]byte(`{"kind":"EventList","items":[{}, {"stage":"ResponseComplete"}]}`))
	f.Fuzz(func(t *testing.T, log []byte) {
		var out bytes.Buffer
		m := newImporter(t, &out)
		_ = m.Read(t.Context(), bytes.NewReader(log)) // any error
		result, err := m.Close()
		if err != nil {
			t.Fatal(err)
		}
		r, err := record.NewReader(&out)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var n int64
		for ; ; n++ {
			if _, err = r.Next(); err != nil {
				break
			}
		}
		if !errors.Is(err, io.EOF) || n != result.Reviews {
			t.Errorf("%d reviews of %d, %v", n, result.Reviews, err)
		}
	})
}
