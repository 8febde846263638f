// Package record writes the reviews that a server answers to a directory, and reads them for
// replay.
//
// A recording is a set of segments. A segment is NDJSON, compressed with zstd, whose lines are
// of type Line: the Header first, then reviews, the objects that they refer to, and gaps. A
// file holds one segment, or several one after the other. A file that was cut off is valid up
// to its last whole line. Beside the segments is
// one file for each configuration that was active, named by its digest.
//
// A recording holds no token and no password. The values that Redaction names are replaced by
// keyed hashes, see package redacted; the key is not in the recording.
package record

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// FormatVersion is the version of the format of segments. A reader refuses a later one.
const FormatVersion = 1

// Line is a line of a segment. Exactly one of its fields is set.
//
// A Reader returns whole lines. In the file, parts of a review may be left out that the segment has
// as objects, see partsPrefix: reviews of a rollout differ in little.
type Line struct {
	Header *Header `json:"header,omitempty"`
	Object *Object `json:"object,omitempty"`
	Review *Review `json:"review,omitempty"`
	Gap    *Gap    `json:"gap,omitempty"`
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
	// Source says where the reviews come from.
	Source Source `json:"source"`
	// Config is the digest of the active configuration when the segment was begun, "" if it is
	// not known. A Review of another configuration names it.
	Config string `json:"config,omitempty"`
	// Replica is the name of the server.
	Replica string `json:"replica,omitempty"`
	// Started is when the segment was begun.
	Started time.Time `json:"started"`
	// Redaction says what is redacted.
	Redaction Redaction `json:"redaction"`
	// Sampling describes which reviews are recorded: AllReviews or the rules.
	Sampling string `json:"sampling,omitempty"`
}

// AllReviews is the Header.Sampling of a recording without rules.
const AllReviews = "all"

// Source is where the reviews of a segment come from.
type Source string

// FromServer are reviews that a server has answered.
const FromServer Source = "server"

// Redaction is what is redacted in a segment.
type Redaction struct {
	// Key identifies the key of the hashes. Hashes of different keys cannot be compared.
	Key string `json:"key"`
	// Paths are field paths in objects, such as "data" and "spec.containers[*].env[*].value",
	// below which all values are redacted. Those of pods hold for pod templates too.
	Paths []string `json:"paths,omitempty"`
	// Annotations are patterns for the keys of annotations whose values are redacted: * is any
	// characters, and case is ignored. All annotations of Secrets are redacted.
	Annotations []string `json:"annotations,omitempty"`
}

// Object is an object that reviews of the segment refer to, or a part of them.
type Object struct {
	// ID is its number in the segment, from 1.
	ID int `json:"id"`
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
	// with the replica's name for a TokenReview.
	ID string `json:"id"`
	// Time is when the review arrived, and Took the time until it was answered.
	Time time.Time     `json:"time"`
	Took time.Duration `json:"took,omitempty"`
	// Endpoint is the name of the endpoint in webhooks.Endpoints.
	Endpoint string `json:"endpoint"`
	// Config is the digest of the configuration that decided, and Replica the name of the
	// server. They are "" for those of the Header.
	Config  string `json:"config,omitempty"`
	Replica string `json:"replica,omitempty"`
	// Decision and Reason are those of review.Outcome.
	Decision review.Decision `json:"decision,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	// Request is the AdmissionReview as it came, but for what is redacted. It is nil for a
	// TokenReview.
	Request json.RawMessage `json:"request,omitempty"`
	// Response is the AdmissionReview that answered, or the TokenReview with its status
	// alone. It is nil if there was no answer: see Decision.
	Response json.RawMessage `json:"response,omitempty"`
	// Redacted reports whether anything in Request is redacted.
	Redacted bool `json:"redacted,omitempty"`
	// Token is what is known about the token of a TokenReview.
	Token *Token `json:"token,omitempty"`
	// Lookups are what the decision read besides the request. They are nil if that was not
	// recorded.
	Lookups *Lookups `json:"lookups,omitempty"`
}

// Token is what is recorded about the token of a TokenReview.
type Token struct {
	// Backend, Source and ID are Backend, Source and TokenID of review.Outcome.
	Backend string `json:"backend,omitempty"`
	Source  string `json:"source,omitempty"`
	ID      string `json:"id,omitempty"`
}

// Lookups are what a decision read besides the request, each once. Objects are named by their
// ID in the segment; 0 is none.
type Lookups struct {
	Namespaces []NamespaceLookup `json:"namespaces,omitempty"`
	Kinds      []KindLookup      `json:"kinds,omitempty"`
	Objects    []ObjectLookup    `json:"objects,omitempty"`
	Lists      []ListLookup      `json:"lists,omitempty"`
	ConfigMaps []ObjectLookup    `json:"configMaps,omitempty"`
	Authorizer []Authorization   `json:"authorizer,omitempty"`
	// NoAuthorizer is true if there was no authorizer to ask: the server had a directory alone.
	NoAuthorizer bool `json:"noAuthorizer,omitempty"`
}

// NamespaceLookup is the answer to policy.Objects.Namespace and sidecar.Namespaces.
type NamespaceLookup struct {
	Name   string `json:"name"`
	Object int    `json:"object,omitempty"`
}

// KindLookup is the answer to policy.Objects.Namespaced.
type KindLookup struct {
	Kind       metav1.GroupVersionKind `json:"kind"`
	Namespaced bool                    `json:"namespaced,omitempty"`
	Error      string                  `json:"error,omitempty"`
	// NotServed reports whether the error wraps policy.ErrNotServed.
	NotServed bool `json:"notServed,omitempty"`
}

// ObjectLookup is the answer to policy.Objects.Get, or to sidecar.ConfigMaps without a kind.
type ObjectLookup struct {
	Kind      metav1.GroupVersionKind `json:"kind,omitzero"`
	Namespace string                  `json:"namespace,omitempty"`
	Name      string                  `json:"name"`
	Object    int                     `json:"object,omitempty"`
	Error     string                  `json:"error,omitempty"`
}

// ListLookup is the answer to policy.Objects.List.
type ListLookup struct {
	Kind      metav1.GroupVersionKind `json:"kind"`
	Namespace string                  `json:"namespace,omitempty"`
	Selector  string                  `json:"selector"`
	Objects   []int                   `json:"objects,omitempty"`
	Error     string                  `json:"error,omitempty"`
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
