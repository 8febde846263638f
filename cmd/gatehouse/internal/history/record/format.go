// Package record writes the reviews that a server answers to a directory, and reads them for
// replay.
//
// A recording is a set of segments. A segment is JSON lines, compressed with zstd, of type Line: the
// Header first, then reviews, the configurations and objects that they refer to, each before the first review that does, and
// gaps. A file holds one segment, or several one after the other. A file that was cut off is valid up
// to its last whole line.
//
// A recording holds no token and no password. The values that Redaction names are replaced by
// Mark.
package record

import (
	"encoding/json"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const (
	// FormatVersion is the version of the format of segments. A reader refuses a later one.
	FormatVersion = 1
	// Mark stands for a value that is redacted. An empty string is not.
	Mark = "gatehouse-redacted"
	// SegmentSuffix ends the names of segments. They begin with the time of their header.
	SegmentSuffix = ".gatehouse.zst"
)

// fileName matches the names that a Recorder gives to files: no directories, no hidden files.
var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,250}$`)

// IsSegmentName reports whether a file of this name in the directory of a recording is a segment.
func IsSegmentName(name string) bool {
	return fileName.MatchString(name) && strings.HasSuffix(name, SegmentSuffix)
}

// Line is a line of a segment. Exactly one of its fields is set.
type Line struct {
	Header *Header        `json:"header,omitempty"`
	Config *Configuration `json:"config,omitempty"`
	Object *Object        `json:"object,omitempty"`
	Review *Review        `json:"review,omitempty"`
	Gap    *Gap           `json:"gap,omitempty"`
}

// Header is the first line of a segment.
type Header struct {
	// Format is the FormatVersion of the segment.
	Format int `json:"format"`
	// Program is the version of the program, and Kubernetes and CEL those of the Kubernetes
	// line and of cel-go that it decides with.
	Program    string `json:"program"`
	Kubernetes string `json:"kubernetes"`
	CEL        string `json:"cel"`
	// Replica is the name of the server.
	Replica string `json:"replica,omitempty"`
	// Started is when the segment was begun.
	Started time.Time `json:"started"`
	// Redaction says what is redacted.
	Redaction Redaction `json:"redaction"`
	// Share is the share of allowed reviews that is recorded, 0 for all.
	Share float64 `json:"share,omitempty"`
}

// Redaction is what is redacted in a segment.
type Redaction struct {
	// Paths are field paths in objects, such as "data" and "spec.containers[*].env[*].value",
	// below which all values are redacted. Those of pods hold for pod templates too.
	Paths []string `json:"paths,omitempty"`
	// Annotations are patterns for the keys of annotations whose values are redacted: * is any
	// characters, and case is ignored. All annotations of Secrets are redacted.
	Annotations []string `json:"annotations,omitempty"`
}

// Configuration is a configuration that has decided on reviews of the segment.
type Configuration struct {
	Digest string `json:"digest"`
	// Documents is the configuration as YAML. Secrets are redacted.
	Documents string `json:"documents"`
}

// Object is an object that reviews of the segment have looked up.
type Object struct {
	// Digest identifies the object in the segment.
	Digest string `json:"digest"`
	// Value is the object as JSON. Secrets are redacted.
	Value json.RawMessage `json:"value"`
}

// Gap says that reviews are missing at this place of the segment.
type Gap struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Reviews int64     `json:"reviews"`
	// Reason is "queue" if they came faster than they could be written, "disk" if they could
	// not be written, and "size" if they were too large, with what they looked up, for a reader.
	Reason string `json:"reason"`
}

// Review is a review and its answer.
type Review struct {
	// ID identifies the review in the recording: the UID of an AdmissionReview, and a number
	// with the replica's name for a TokenReview or a SubjectAccessReview.
	ID string `json:"id"`
	// Time is when the review arrived, and Took the time until it was answered.
	Time time.Time     `json:"time"`
	Took time.Duration `json:"took,omitempty"`
	// Endpoint is the name of the endpoint in webhooks.Endpoints.
	Endpoint string `json:"endpoint"`
	// Config is the digest of the configuration that decided.
	Config string `json:"config,omitempty"`
	// Decision and Reason are those of review.Outcome.
	Decision review.Decision `json:"decision,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	// Redacted are the places in Request where values are redacted, such as
	// "request.object.spec.containers[*].env[*].value".
	Redacted []string `json:"redacted,omitempty"`
	// Token is what is known about the token of a TokenReview.
	Token *Token `json:"token,omitempty"`
	// Lookups are what the decision read besides the request. They are nil if that was not
	// recorded.
	Lookups *Lookups `json:"lookups,omitempty"`
	// Request is the AdmissionReview as it came, but for what is redacted, or of a SubjectAccessReview
	// the user's name and scope, and what is asked for. It is nil for a TokenReview.
	Request json.RawMessage `json:"request,omitempty"`
	// Response is the response of the AdmissionReview that answered, with its patch as JSON, or the TokenReview or SubjectAccessReview
	// with its status alone. It is nil if there was no answer: see Decision.
	Response json.RawMessage `json:"response,omitempty"`
}

// Token is what is recorded about the token of a TokenReview.
type Token struct {
	// Backend, Source and ID are Backend, Source and TokenID of review.Outcome.
	Backend string `json:"backend,omitempty"`
	Source  string `json:"source,omitempty"`
	ID      string `json:"id,omitempty"`
}

// Lookups are what a decision read besides the request, each once. Objects are named by their
// digest; "" is none.
type Lookups struct {
	Namespaces []NamespaceLookup `json:"namespaces,omitempty"`
	Kinds      []KindLookup      `json:"kinds,omitempty"`
	Objects    []ObjectLookup    `json:"objects,omitempty"`
	Lists      []ListLookup      `json:"lists,omitempty"`
	ConfigMaps []ConfigMapLookup `json:"configMaps,omitempty"`
	Authorizer []Authorization   `json:"authorizer,omitempty"`
	// NoAuthorizer is true if there was no authorizer to ask: the server had a directory alone.
	NoAuthorizer bool `json:"noAuthorizer,omitempty"`
}

// NamespaceLookup is the answer to policy.Objects.Namespace and sidecar.Namespaces.
type NamespaceLookup struct {
	Name   string `json:"name"`
	Object string `json:"object,omitempty"`

	found *corev1.Namespace
}

// KindLookup is the answer to policy.Objects.Namespaced.
type KindLookup struct {
	Kind       metav1.GroupVersionKind `json:"kind"`
	Namespaced bool                    `json:"namespaced,omitempty"`
	Error      string                  `json:"error,omitempty"`
	// NotServed reports whether the error wraps policy.ErrNotServed.
	NotServed bool `json:"notServed,omitempty"`
}

// ObjectLookup is the answer to policy.Objects.Get.
type ObjectLookup struct {
	Kind      metav1.GroupVersionKind `json:"kind"`
	Namespace string                  `json:"namespace,omitempty"`
	Name      string                  `json:"name"`
	Object    string                  `json:"object,omitempty"`
	Error     string                  `json:"error,omitempty"`

	found *unstructured.Unstructured
}

// ListLookup is the answer to policy.Objects.List.
type ListLookup struct {
	Kind      metav1.GroupVersionKind `json:"kind"`
	Namespace string                  `json:"namespace,omitempty"`
	Selector  string                  `json:"selector"`
	Objects   []string                `json:"objects,omitempty"`
	Error     string                  `json:"error,omitempty"`

	found []*unstructured.Unstructured
}

// ConfigMapLookup is the answer to sidecar.ConfigMaps.
type ConfigMapLookup struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Object    string `json:"object,omitempty"`

	data  map[string]string
	known bool
}

// Authorization is an answer of the authorizer.
type Authorization struct {
	// Attributes is what was asked, as AttributesKey returns it.
	Attributes string `json:"attributes"`
	// Decision is "allow", "deny" or "noOpinion".
	Decision string `json:"decision,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Error    string `json:"error,omitempty"`
}

// EachObject calls a function with the digest of every object that the lookups name. Nil lookups name none.
func (l *Lookups) EachObject(visit func(digest string)) {
	if l == nil {
		return
	}
	one := func(digest string) {
		if digest != "" {
			visit(digest)
		}
	}
	for i := range l.Namespaces {
		one(l.Namespaces[i].Object)
	}
	for i := range l.Objects {
		one(l.Objects[i].Object)
	}
	for i := range l.Lists {
		for _, digest := range l.Lists[i].Objects {
			one(digest)
		}
	}
	for i := range l.ConfigMaps {
		one(l.ConfigMaps[i].Object)
	}
}
