package drill

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Outage is what an outage of each webhook would have meant for requests of the past.
type Outage struct {
	// Requests is how many requests were judged: those that write, of the stream that has most.
	Requests int64 `json:"requests"`
	// From and To are the first and the last of them.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Backends are those that requests needed, the worst first.
	Backends []BackendOutage `json:"backends"`
}

// BackendOutage is an outage of what answers for webhooks.
type BackendOutage struct {
	// Backend is a Service, NAMESPACE/NAME, or the address of a URL.
	Backend string `json:"backend"`
	// From and To are the window: the worst hour, or the one that was asked for.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Failed is how many requests would have failed, Healing how many of these were made by Kubernetes' own components, and Unknown how
	// many may have failed too: what decides is not in the log.
	Failed  int64 `json:"failed"`
	Healing int64 `json:"healing"`
	Unknown int64 `json:"unknown"`
	// Callers are the users whose requests would have failed most often, and MoreCallers is how many there are besides.
	Callers     []Caller `json:"callers"`
	MoreCallers int      `json:"moreCallers,omitempty"`
}

// Caller is a user whose requests would have failed.
type Caller struct {
	User   string `json:"user"`
	Failed int64  `json:"failed"`
}

const (
	// maxBuckets and maxCallers bound what is counted: each hour of each backend, and the users of each.
	maxBuckets = 50_000
	maxCallers = 200_000
	// maxNamed is how many callers a report names.
	maxNamed = 5
)

// past counts requests of the past.
type past struct {
	// window reports whether all requests are of one window, and not of hours.
	from, to time.Time
	window   bool
	outage   Outage
	buckets  map[bucketKey]*bucket
	requests map[string]int64 // by stream
	callers  int
	full     bool
}

type bucketKey struct {
	backend, stream string
	hour            int64
}

type bucket struct {
	failed, healing, unknown int64
	users                    map[string]int64
}

// Window makes the requests of the past one window. Those before from and at or after to do not count; a zero time has no effect. Without a
// window, the worst hour is reported.
func (d *Drill) Window(from, to time.Time) {
	d.past.from, d.past.to, d.past.window = from, to, !from.IsZero() || !to.IsZero()
}

// AddRequest judges a request of the past. The stream is where it comes from: of several that may hold the same requests, the one with the
// most counts. The error is that of the context, or says why the request cannot be read.
func (d *Drill) AddRequest(ctx context.Context, stream string, at time.Time, of *Request) error {
	p := &d.past
	if !p.from.IsZero() && at.Before(p.from) || !p.to.IsZero() && !at.Before(p.to) {
		return nil
	}
	r, err := d.newRequest(of)
	if err != nil {
		return err
	}
	p.requests[stream]++
	p.outage.Requests = max(p.outage.Requests, p.requests[stream])
	if p.outage.From.IsZero() || at.Before(p.outage.From) {
		p.outage.From = at
	}
	if at.After(p.outage.To) {
		p.outage.To = at
	}
	judged := map[string]call{}
	for _, h := range d.cluster.hooks {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !h.fails || judged[h.backend()] == called {
			continue
		}
		if c, _, _ := h.calls(ctx, r); c == called || c == unsure {
			judged[h.backend()] = c
		}
	}
	for backend, c := range judged {
		p.count(bucketKey{backend, stream, p.hourOf(at)}, c, of)
	}
	return nil
}

// hourOf returns the hour of a time, 0 in a window.
func (p *past) hourOf(at time.Time) int64 {
	if p.window {
		return 0
	}
	return at.Unix() / int64(time.Hour/time.Second)
}

// count counts a request in a bucket, as long as there is space.
func (p *past) count(key bucketKey, c call, of *Request) {
	b := p.buckets[key]
	if b == nil {
		if len(p.buckets) >= maxBuckets {
			p.full = true
			return
		}
		b = &bucket{users: map[string]int64{}}
		p.buckets[key] = b
	}
	if c == unsure {
		b.unknown++
		return
	}
	b.failed++
	if isKubernetes(of.User.Username) {
		b.healing++
	}
	if _, known := b.users[of.User.Username]; known || p.callers < maxCallers {
		if !known {
			p.callers++
		}
		b.users[of.User.Username]++
	} else {
		p.full = true
	}
}

// addOutage adds what was counted to the report.
func (d *Drill) addOutage() {
	p := &d.past
	if p.outage.Requests == 0 {
		return
	}
	if p.full {
		d.addUnknown("past", "there are more hours or users than are counted: what is said about the past is too little")
	}
	worst := map[string]bucketKey{}
	for key, b := range p.buckets {
		last, has := worst[key.backend]
		if !has || p.compare(b, key, p.buckets[last], last) < 0 {
			worst[key.backend] = key
		}
	}
	for backend, key := range worst {
		b := p.buckets[key]
		o := BackendOutage{Backend: backend, From: p.outage.From, To: p.outage.To, Failed: b.failed, Healing: b.healing, Unknown: b.unknown, Callers: []Caller{}}
		if !p.window {
			o.From = time.Unix(key.hour*int64(time.Hour/time.Second), 0).UTC()
			o.To = o.From.Add(time.Hour)
		} else {
			o.From, o.To = cmp.Or(p.from, o.From), cmp.Or(p.to, o.To)
		}
		for _, user := range slices.SortedFunc(maps.Keys(b.users), func(a, c string) int { return cmp.Or(cmp.Compare(b.users[c], b.users[a]), cmp.Compare(a, c)) }) {
			if len(o.Callers) == maxNamed {
				o.MoreCallers = len(b.users) - maxNamed
				break
			}
			o.Callers = append(o.Callers, Caller{user, b.users[user]})
		}
		p.outage.Backends = append(p.outage.Backends, o)
	}
	slices.SortFunc(p.outage.Backends, func(a, b BackendOutage) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(b.Unknown, a.Unknown), cmp.Compare(a.Backend, b.Backend))
	})
	d.report.Outage = &p.outage
}

// compare orders buckets: the worst first, then the earliest.
func (p *past) compare(a *bucket, of bucketKey, b *bucket, other bucketKey) int {
	return cmp.Or(cmp.Compare(b.failed, a.failed), cmp.Compare(b.unknown, a.unknown), cmp.Compare(of.hour, other.hour), cmp.Compare(of.stream, other.stream))
}

// OfEvent returns the request of an audit Event and when it was made, and false if it is none that admission would have seen: one that
// reads, that was not allowed, or another stage of it.
func OfEvent(e *auditv1.Event) (*Request, time.Time, bool) {
	ref := e.ObjectRef
	if ref == nil || ref.Resource == "" || e.Stage != auditv1.StageResponseComplete || e.Annotations["authorization.k8s.io/decision"] == "forbid" ||
		e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusUnauthorized {
		return nil, time.Time{}, false
	}
	r := &Request{
		Resource:    schema.GroupVersionResource{Group: ref.APIGroup, Version: ref.APIVersion, Resource: ref.Resource},
		Subresource: ref.Subresource, Namespace: ref.Namespace, Name: ref.Name, User: e.User, ObjectUnknown: true,
	}
	if e.ImpersonatedUser != nil {
		r.User = *e.ImpersonatedUser
	}
	if ref.Resource == "namespaces" && ref.APIGroup == "" {
		r.Namespace = cmp.Or(ref.Namespace, ref.Name)
	}
	_, query, _ := strings.Cut(e.RequestURI, "?")
	r.DryRun = strings.Contains(query, "dryRun=")
	switch {
	case slices.Contains([]string{"exec", "attach", "portforward", "proxy"}, ref.Subresource):
		r.Operation = admissionv1.Connect
	case e.Verb == "create":
		r.Operation = admissionv1.Create
	case e.Verb == "update", e.Verb == "patch":
		r.Operation = admissionv1.Update
		if e.Verb == "patch" && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusCreated {
			r.Operation = admissionv1.Create // by server-side apply
		}
	case e.Verb == "delete", e.Verb == "deletecollection":
		r.Operation = admissionv1.Delete
	default:
		return nil, time.Time{}, false
	}
	r.addObject(e)
	return r, e.RequestReceivedTimestamp.Time, true
}

// addObject adds the object of an Event, if it has one as admission would have seen it. A patch is none. Of an update, the old object is not
// known.
func (r *Request) addObject(e *auditv1.Event) {
	object := e.RequestObject
	if e.Verb == "patch" || object == nil {
		object = e.ResponseObject
	}
	switch {
	case r.Operation == admissionv1.Connect:
		r.ObjectUnknown, r.Redacted = false, true // options, which have no labels
	case r.Operation != admissionv1.Delete && isObject(object):
		r.Object, r.ObjectUnknown = object.Raw, r.Operation == admissionv1.Update
		var kind struct{ APIVersion, Kind string }
		if json.Unmarshal(object.Raw, &kind) == nil {
			r.Kind = schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
		}
	}
}

// isObject reports whether something in an Event is an object, and no status of an error.
func isObject(o *runtime.Unknown) bool {
	return o != nil && bytes.HasPrefix(bytes.TrimSpace(o.Raw), []byte("{")) && !bytes.Contains(o.Raw[:min(len(o.Raw), 200)], []byte(`"kind":"Status"`))
}

// OfReview returns the request of a recorded AdmissionReview. Redacted reports whether values in it are.
func OfReview(review []byte, redacted bool) (*Request, error) {
	var decoded admissionv1.AdmissionReview
	if err := json.Unmarshal(review, &decoded); err != nil {
		return nil, fmt.Errorf("it is no AdmissionReview: %w", err)
	}
	of := decoded.Request
	if of == nil {
		return nil, fmt.Errorf("it is no AdmissionReview: it has no request")
	}
	r := &Request{
		Operation: of.Operation, Resource: schema.GroupVersionResource(of.Resource), Subresource: of.SubResource, Kind: schema.GroupVersionKind(of.Kind),
		Namespace: of.Namespace, Name: of.Name, User: of.UserInfo, Object: of.Object.Raw, OldObject: of.OldObject.Raw, Redacted: redacted,
	}
	if of.RequestResource != nil && of.RequestKind != nil {
		r.Resource, r.Subresource = schema.GroupVersionResource(*of.RequestResource), of.RequestSubResource
	}
	return r, nil
}
