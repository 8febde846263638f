package drill

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// eventOf returns an Event that has these fields besides the usual ones.
func eventOf(t testing.TB, at time.Time, user, verb, ref, more string) *auditv1.Event {
	t.Helper()
	text := fmt.Sprintf(`{"stage": "ResponseComplete", "requestURI": "/", "verb": %q, "user": {"username": %q}, "objectRef": %s,
  "requestReceivedTimestamp": %q%s}`, verb, user, ref, at.Format("2006-01-02T15:04:05.000000Z"), more)
	e := new(auditv1.Event)
	if err := json.Unmarshal([]byte(text), e); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return e
}

const podRef = `{"resource": "pods", "namespace": "shop", "apiVersion": "v1"}`

// TestEvents has which Events of an audit log are requests that admission would have seen, and what becomes of them.
func TestEvents(t *testing.T) {
	t.Parallel()
	const (
		labelled = `rules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: ["pods", "pods/*"]}], objectSelector: {matchLabels: {app: web}}`
		users    = `rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}], matchConditions: [{name: a, expression: request.userInfo.username == "alice"}]`
		fields   = pods + `, matchConditions: [{name: a, expression: "!has(object.spec.nodeName)"}, {name: b, expression: request.userInfo.username == "alice"}]`
		object   = `, "requestObject": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"app": "web"}}, "spec": {}}`
		other    = `, "requestObject": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"app": "db"}}, "spec": {"nodeName": "a"}}`
	)
	for name, c := range map[string]struct {
		hook, user, verb, ref, more, want string
	}{
		"a creation":                    {pods, "alice", "create", podRef, "", "1 failed"},
		"of another resource":           {pods, "alice", "create", `{"resource": "services", "namespace": "shop", "apiVersion": "v1"}`, "", "0 failed"},
		"reading":                       {pods, "alice", "get", podRef, "", "none"},
		"a watch":                       {pods, "alice", "watch", podRef, "", "none"},
		"no resource":                   {pods, "alice", "create", "null", "", "none"},
		"forbidden":                     {pods, "alice", "create", podRef, `, "annotations": {"authorization.k8s.io/decision": "forbid"}`, "none"},
		"unauthorized":                  {pods, "alice", "create", podRef, `, "responseStatus": {"code": 401}`, "none"},
		"another stage":                 {pods, "alice", "create", podRef, `, "stage": "RequestReceived"`, "none"},
		"refused by admission":          {pods, "alice", "create", podRef, `, "responseStatus": {"code": 403}`, "1 failed"},
		"an update":                     {pods, "alice", "update", podRef, "", "0 failed"},
		"a patch":                       {rule("", "pods", "UPDATE"), "alice", "patch", podRef, "", "1 failed"},
		"a patch that creates":          {pods, "alice", "patch", podRef, `, "responseStatus": {"code": 201}`, "1 failed"},
		"a deletion":                    {rule("", "pods", "DELETE"), "alice", "deletecollection", podRef, "", "1 failed"},
		"a session":                     {rule("", "pods/exec", "CONNECT"), "alice", "create", `{"resource": "pods", "subresource": "exec", "namespace": "shop", "name": "a", "apiVersion": "v1"}`, "", "1 failed"},
		"a session, a selector":         {labelled, "alice", "get", `{"resource": "pods", "subresource": "exec", "namespace": "shop", "name": "a", "apiVersion": "v1"}`, "", "0 failed"},
		"a label that is not known":     {labelled, "alice", "create", podRef, "", "0 failed, 1 unknown"},
		"a label that is known":         {labelled, "alice", "create", podRef, object, "1 failed"},
		"another label":                 {labelled, "alice", "create", podRef, other, "0 failed"},
		"a label of an update":          {labelled, "alice", "update", podRef, object, "1 failed"},
		"another label of an update":    {labelled, "alice", "update", podRef, other, "0 failed, 1 unknown"},
		"the label of a patch":          {labelled, "alice", "patch", podRef, object, "0 failed, 1 unknown"},
		"what a patch has made":         {labelled, "alice", "patch", podRef, strings.Replace(object, "requestObject", "responseObject", 1), "1 failed"},
		"an answer that is an error":    {labelled, "alice", "patch", podRef, `, "responseObject": {"kind":"Status","apiVersion": "v1"}`, "0 failed, 1 unknown"},
		"a condition on the user":       {users, "alice", "create", podRef, "", "1 failed"},
		"on another user":               {users, "bob", "create", podRef, "", "0 failed"},
		"as another user":               {users, "bob", "create", podRef, `, "impersonatedUser": {"username": "alice"}`, "1 failed"},
		"a condition on the object":     {fields, "alice", "create", podRef, "", "0 failed, 1 unknown"},
		"and another that is false":     {fields, "bob", "create", podRef, "", "0 failed"},
		"a condition on a known object": {fields, "alice", "create", podRef, object, "1 failed"},
		"which is false":                {fields, "alice", "create", podRef, other, "0 failed"},
		"fails open":                    {pods + ", failurePolicy: Ignore", "alice", "create", podRef, "", "0 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := New(t.Context(), clusterOf(t, guard(c.hook)...))
			if err != nil {
				t.Fatal(err)
			}
			got := "none"
			if r, at, ok := OfEvent(eventOf(t, now, c.user, c.verb, c.ref, c.more)); ok {
				if err := d.AddRequest(t.Context(), "log", at, r); err != nil {
					t.Fatal(err)
				}
				report, err := d.Run(t.Context(), Options{Now: now})
				if err != nil {
					t.Fatal(err)
				}
				got = "0 failed"
				for _, b := range report.Outage.Backends {
					if got = fmt.Sprintf("%d failed", b.Failed); b.Unknown > 0 {
						got += fmt.Sprintf(", %d unknown", b.Unknown)
					}
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestOutage names the worst hour, or the window that is asked for, and who makes the requests.
func TestOutage(t *testing.T) {
	t.Parallel()
	const controller = "system:serviceaccount:kube-system:replicaset-controller"
	for name, c := range map[string]struct {
		from, to time.Time
		want     string
	}{
		"the worst hour": {time.Time{}, time.Time{}, "11 requests; 12:00 to 13:00: 9 failed, 2 healing, [{system:serviceaccount:kube-system:replicaset-controller 2} {user-2 2} {user-0 1} {user-1 1} {user-3 1}] and 2 more"},
		"a window":       {now.Add(-time.Hour), now.Add(5 * time.Minute), "8 requests; 11:00 to 12:05: 8 failed, 3 healing, [{system:serviceaccount:kube-system:replicaset-controller 3} {user-0 1} {user-1 1} {user-2 1} {user-3 1}] and 1 more"},
		"since":          {now.Add(30 * time.Minute), time.Time{}, "2 requests; 12:30 to 13:30: 2 failed, 0 healing, [{user-2 1} {user-9 1}] and 0 more"},
		"nothing":        {now.Add(48 * time.Hour), time.Time{}, "nothing"},
	} {
		d, err := New(t.Context(), clusterOf(t, guard(pods)...))
		if err != nil {
			t.Fatal(err)
		}
		d.Window(c.from, c.to)
		add := func(after time.Duration, user, stream string) {
			r, at, _ := OfEvent(eventOf(t, now.Add(after), user, "create", podRef, ""))
			if err := d.AddRequest(t.Context(), stream, at, r); err != nil {
				t.Fatal(err)
			}
		}
		add(-30*time.Minute, controller, "a")
		for i := range 2 {
			add(time.Duration(i)*time.Minute, controller, "a")
		}
		for i := range 6 {
			add(time.Duration(i)*time.Minute, fmt.Sprintf("user-%d", i), "a")
		}
		add(30*time.Minute, "user-2", "a")
		add(90*time.Minute, "user-9", "a")
		if c.from.IsZero() { // the same requests, as another endpoint has recorded them
			add(0, "user-0", "b")
			add(0, "user-1", "b")
		}
		report, err := d.Run(t.Context(), Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		got := "nothing"
		if o := report.Outage; o != nil {
			b := o.Backends[0]
			got = fmt.Sprintf("%d requests; %s to %s: %d failed, %d healing, %v and %d more", o.Requests, b.From.Format("15:04"), b.To.Format("15:04"), b.Failed, b.Healing, b.Callers, b.MoreCallers)
		}
		if got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
}

// TestReviews: a recorded review is the request as it was made, and what was redacted decides nothing.
func TestReviews(t *testing.T) {
	t.Parallel()
	const review = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "a", "operation": "CREATE", "kind": {"version": "v1", "kind": "Pod"},
  "resource": {"version": "v1", "resource": "pods"}, "requestKind": {"version": "v1", "kind": "Pod"}, "requestResource": {"version": "v1", "resource": "pods"}, "namespace": "shop",
  "userInfo": {"username": "alice"}, "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"app": "web"}}, "spec": {"nodeName": "gatehouse-redacted"}}}}`
	for name, c := range map[string]struct {
		hook     string
		redacted bool
		want     call
	}{
		"a label":               {pods + ", objectSelector: {matchLabels: {app: web}}", true, called},
		"another label":         {pods + ", objectSelector: {matchLabels: {app: db}}", true, notCalled},
		"a field":               {pods + `, matchConditions: [{name: a, expression: object.spec.nodeName == "a"}]`, false, notCalled},
		"a field of a redacted": {pods + `, matchConditions: [{name: a, expression: object.spec.nodeName == "a"}]`, true, unsure},
	} {
		of, err := OfReview([]byte(review), c.redacted)
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(t.Context(), clusterOf(t, guard(c.hook)...))
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.newRequest(of)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := d.cluster.hooks[0].calls(t.Context(), r); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
	for _, bad := range []string{"", "[]", "{}", `{"request": 1}`} {
		if _, err := OfReview([]byte(bad), false); err == nil {
			t.Errorf("%q is a review", bad)
		}
	}
}

// FuzzCluster: whatever objects and Events say, a drill ends with a report.
func FuzzCluster(f *testing.F) {
	add := func(kind, object, event string) { f.Add(kind, []byte(object), []byte(event)) }
	const event = `{"stage": "ResponseComplete", "verb": "create", "objectRef": {"resource": "pods", "namespace": "shop", "apiVersion": "v1"}, "requestObject": {"metadata": {"labels": {"a": "b"}}}}`
	add("Service/v1", `{"metadata": {"name": "guard", "namespace": "guard"}, "spec": {"selector": {"app": "guard"}, "ports": [{"port": 443}]}}`, event)
	add("Pod/v1", `{"metadata": {"name": "a", "ownerReferences": [{"kind": "Node", "name": "a", "controller": true}]}, "spec": {"volumes": [{}]}}`, "{}")
	add("APIService/apiregistration.k8s.io/v1", `{"spec": {"service": {}}}`, `{"objectRef": null}`)
	add("CustomResourceDefinition/apiextensions.k8s.io/v1", `{"kind": "a", "metadata": {"name": "a"}, "spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "a", "port": 1e9}}}}}}`, "")
	add("ValidatingWebhookConfiguration/admissionregistration.k8s.io/v1", `{"metadata": {"name": "a"}, "webhooks": [{"rules": [{}], "clientConfig": {"caBundle": "YQ=="}, "matchConditions": [{"expression": "object.a"}]}]}`, event)
	add("MutatingWebhookConfiguration/admissionregistration.k8s.io/v1", `{"metadata": {"name": "a"}, "webhooks": [{"clientConfig": {"url": "x"}, "namespaceSelector": {"matchExpressions": [{}]}}]}`, event)
	f.Fuzz(func(t *testing.T, named string, object, event []byte) {
		c := clusterOf(t, guard(pods)...)
		kind, version, _ := strings.Cut(named, "/")
		if err := c.Add(schema.FromAPIVersionAndKind(version, kind), object, Place{}); err != nil {
			return
		}
		d, err := New(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		var e auditv1.Event
		if json.Unmarshal(event, &e) == nil {
			if r, at, ok := OfEvent(&e); ok {
				_ = d.AddRequest(t.Context(), "log", at, r) // an object may be none
			}
		}
		r, err := d.Run(t.Context(), Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Subjects) == 0 {
			t.Error("the webhook is lost")
		}
	})
}
