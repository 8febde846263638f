package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The annotations that Gatehouse reads from and writes to pods, and reads from
// namespaces.
const (
	// InjectAnnotation on a pod is the pod's word on injection: "true" asks
	// for every profile that matches, "false" declines all of them, and a list
	// such as "mesh,-logs" asks for the profiles that it names and declines
	// those behind a minus. Any other value, and the name of a profile that
	// does not exist, refuses the pod, because a misspelt wish must not pass
	// silently. On a namespace it is the word for every pod that says nothing
	// itself.
	InjectAnnotation = "sidecar.gatehouse.dev/inject"
	// StatusAnnotation on a pod records which profiles were applied and what
	// each added, as one line of JSON. Gatehouse alone writes it.
	StatusAnnotation = "sidecar.gatehouse.dev/status"
	// ParameterDomain is what follows the name of a profile, and a dot is
	// between them, in the prefix of the annotations that set its parameters:
	// "mesh.sidecar.gatehouse.dev/cpu".
	ParameterDomain = "sidecar.gatehouse.dev"
)

// GroupVersion is the API group and version of every kind in this package.
//
//nolint:gochecknoglobals // the constant that every Kubernetes API package exports under this name
var GroupVersion = schema.GroupVersion{Group: "gatehouse.dev", Version: "v1alpha1"}

// AdmissionPolicy refuses, warns about or notes what the API server is asked
// to do. Its spec is that of a ValidatingAdmissionPolicy and more. It is
// cluster-scoped, and with validationActions of its own it needs no binding.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type AdmissionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AdmissionPolicySpec `json:"spec"`
}

// AdmissionPolicyList is a list of AdmissionPolicy.
//
// +kubebuilder:object:root=true
type AdmissionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AdmissionPolicy `json:"items"`
}

// AdmissionPolicySpec is upstream's ValidatingAdmissionPolicySpec with what
// Gatehouse adds. A policy has podSecurity, or validations, or both.
type AdmissionPolicySpec struct {
	admissionregistrationv1.ValidatingAdmissionPolicySpec `json:",inline"`

	// PodSecurity checks pods against a Pod Security Standard, natively.
	// +optional
	PodSecurity *PodSecurity `json:"podSecurity,omitempty"`
	// ValidationActions say what a violation leads to, as in a
	// ValidatingAdmissionPolicyBinding: Deny, Warn, Audit; Deny and Warn
	// exclude each other. Required.
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions"`
}

// PodSecurity names a Pod Security Standard,
// https://kubernetes.io/docs/concepts/security/pod-security-standards/.
type PodSecurity struct {
	// Level is privileged, baseline or restricted.
	// +kubebuilder:validation:Enum=privileged;baseline;restricted
	Level string `json:"level"`
	// Version is the Kubernetes minor version whose rules apply: latest or
	// v1.NN. The default is latest.
	// +optional
	// +kubebuilder:default=latest
	Version string `json:"version,omitempty"`
}

// AccessToken is an opaque bearer token, known by its id and the hash of its
// text; the text itself is stored nowhere. The object's name is the token's
// id. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type AccessToken struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AccessTokenSpec `json:"spec"`
}

// AccessTokenList is a list of AccessToken.
//
// +kubebuilder:object:root=true
type AccessTokenList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AccessToken `json:"items"`
}

// AccessTokenSpec says what a token proves and until when.
type AccessTokenSpec struct {
	// SHA256 is the hash of the whole token text, in 64 lower-case hexadecimal
	// digits.
	SHA256 string `json:"sha256"`
	// User is the identity that the token proves. Names, groups and extra keys
	// that Kubernetes reserves for itself are refused.
	User authenticationv1.UserInfo `json:"user"`
	// ExpiresAt is the moment from which the token is refused.
	ExpiresAt metav1.Time `json:"expiresAt"`
	// Audiences are the audiences that the token is good for. Without any, it
	// is good for the API server's own audiences and no others.
	// +optional
	Audiences []string `json:"audiences,omitempty"`
}
