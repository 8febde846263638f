// Package v1alpha1 holds the Go types of the documents that Gatehouse reads:
// SidecarProfile, AdmissionPolicy, AdmissionPolicyBinding, PolicyException,
// PolicyBaseline, PolicyConfiguration, AccessToken, TokenRevocation, Grant and Test of the
// API group gatehouse.dev. A client that writes these documents imports this package and nothing
// else of Gatehouse.
//
// Kubernetes' own ValidatingAdmissionPolicy and ValidatingAdmissionPolicyBinding
// are read unchanged and have their types in k8s.io/api/admissionregistration/v1.
//
// +kubebuilder:object:generate=true
// +groupName=gatehouse.dev
package v1alpha1
