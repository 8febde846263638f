// Package status shows users of a cluster what became of their custom resources: by conditions and counts in the status of
// each object, and by Events. Every replica reports in a Lease what it uses, and the elected replica writes the status. No
// decision depends on it.
package status

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Object names a custom resource of the group gatehouse.dev as it was read.
type Object struct {
	Kind string
	// Namespace is "" for a kind that is in none.
	Namespace, Name string
	UID             types.UID
	// Generation is the metadata.generation that was read.
	Generation int64
}

// Outcome is what became of an object in a replica.
type Outcome struct {
	Object

	// Use says which version of the object is active.
	Use resolve.Use
	// Findings are about the object as it was read, errors and warnings. Without an
	// error Use is resolve.Current.
	Findings diagnostic.List
	// Begins and Expires are when the object begins and ends to have an effect, zero for always and never.
	Begins, Expires time.Time
	// Entries is the number of entries of a PolicyBaseline.
	Entries int
	// Gives is what a Grant gives to whom, for people.
	Gives string
	// Remove is when the object is deleted, zero for never.
	Remove time.Time
	// NotSent are remarks, for people, on what the object is about and the webhook
	// configurations do not send.
	NotSent []string
	// NoParams are remarks, for people, on params that do not exist, without which requests are denied.
	NoParams []string
	// Warnings are remarks, for people, on what the object costs in the cluster.
	Warnings []string
	// Native is the condition Native, without a type if the object must not have it. Nil leaves what there is.
	Native *metav1.Condition
}

// Report is what a replica uses.
type Report struct {
	// Digest stands for which version of each object was read, and of which of them
	// that is in use: replicas with the same digest use the same of each that has no
	// errors.
	Digest string
	// Rejected is why the last configuration that was read is not active, for people, "" if it is.
	Rejected string
	// Outcomes are those of all objects, in no order.
	Outcomes []Outcome
}
