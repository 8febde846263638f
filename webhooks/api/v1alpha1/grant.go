package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Grant gives a user groups for a time. While it is valid, Gatehouse adds the groups to every
// identity with the name of the user, and the API server's authorizer does the rest. It is
// cluster-scoped.
//
// In a cluster, creating a Grant and changing its spec need the verb "grant" on
// groups.gatehouse.dev with the name of each group. The API server itself checks that, by the
// ValidatingAdmissionPolicy gatehouse-grants. A Grant that was created without this policy gives
// nothing.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ghg,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="User",type=string,JSONPath=`.spec.subject.user`
// +kubebuilder:printcolumn:name="Groups",type=string,JSONPath=`.spec.groups`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Granted by",type=string,priority=1,JSONPath=`.spec.grantedBy`
// +kubebuilder:printcolumn:name="Because",type=string,priority=1,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Compiled")].message`
// +kubebuilder:printcolumn:name="Degraded because",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`
type Grant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec defines who gets which groups, and until when.
	Spec GrantSpec `json:"spec"`

	// Status is reported by Gatehouse in a cluster. It is ignored in a directory.
	// +optional
	Status GrantStatus `json:"status,omitzero"`
}

// GrantList is a list of Grant.
//
// +kubebuilder:object:root=true
type GrantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Grant `json:"items"`
}

// GrantSpec defines who gets which groups, and until when.
//
// +kubebuilder:validation:XValidation:rule="!has(self.notBefore) || self.notBefore < self.expiresAt",fieldPath=".expiresAt",message="must be after notBefore"
type GrantSpec struct {
	// Subject is who gets the groups.
	Subject GrantSubject `json:"subject"`
	// Groups are the groups that the subject gets, besides those of the token. Groups that
	// Kubernetes reserves are rejected, without any exception.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	Groups []string `json:"groups"`
	// Reason is why the groups are given. It is not interpreted.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// NotBefore is the time from which the groups are given. Without it, they are given at
	// once.
	// +optional
	NotBefore metav1.Time `json:"notBefore,omitzero"`
	// ExpiresAt is the time from which the groups are not given any more. The API server
	// remembers the identity of a token for --authentication-token-webhook-cache-ttl, so it
	// may use the groups for that much longer.
	ExpiresAt metav1.Time `json:"expiresAt"`
	// GrantedBy is the user who created the Grant or last changed its spec, by the name that
	// the API server knows. In a cluster, the API server rejects any other name. In a
	// directory it is not checked, because whoever writes there decides on logins anyway.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	GrantedBy string `json:"grantedBy,omitempty"`
}

// MaxGrantGroups is how many groups a Grant has at most. The API server asks its authorizer about
// each, and bounds how often one policy may ask.
const MaxGrantGroups = 10

// GrantSubject is who gets groups.
type GrantSubject struct {
	// User is the name of the user as Gatehouse answers it, prefixes included.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	User string `json:"user"`
}

// GrantPhase says whether the groups of a Grant are given at a time.
type GrantPhase string

// The values of GrantPhase.
const (
	// GrantNotYet is before notBefore.
	GrantNotYet GrantPhase = "NotYet"
	// GrantActive is from notBefore to expiresAt.
	GrantActive GrantPhase = "Active"
	// GrantExpired is from expiresAt on.
	GrantExpired GrantPhase = "Expired"
)

// PhaseAt returns the phase at a time.
func (s *GrantSpec) PhaseAt(now time.Time) GrantPhase {
	switch {
	case now.Before(s.NotBefore.Time):
		return GrantNotYet
	case now.Before(s.ExpiresAt.Time):
		return GrantActive
	default:
		return GrantExpired
	}
}

// GrantExtraKey is the key of a user's extra with the names of the Grants that gave groups, for audit
// logs and for policies.
const GrantExtraKey = "gatehouse.dev/grant"
