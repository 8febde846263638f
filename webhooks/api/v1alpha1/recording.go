package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RecordingConfiguration defines which share of reviews 'gatehouse serve --record' records, and what it
// redacts. It is the document of --record-config, and not a resource of the cluster.
type RecordingConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// Sampling defines the share of the reviews to record. Reviews that are denied, that
	// have a warning or that cannot be decided are always recorded.
	Sampling RecordingSampling `json:"sampling,omitzero"`
	// Redaction adds to what is redacted by default.
	Redaction RecordingRedaction `json:"redaction,omitzero"`
}

// RecordingSampling defines the share of reviews to record. Which reviews that are is a
// function of their UID.
type RecordingSampling struct {
	// Default is a share from 0 to 1. The default is 1.
	Default *float64 `json:"default,omitempty"`
}

// RecordingRedaction adds to what is redacted by default.
type RecordingRedaction struct {
	// Paths are field paths in objects, such as "spec.containers[*].args": all values at and below
	// them are redacted. Paths below spec apply to pod templates too.
	Paths []string `json:"paths,omitempty"`
	// Annotations are patterns for keys of annotations whose values are redacted. "*" stands for
	// any characters; case is ignored.
	Annotations []string `json:"annotations,omitempty"`
}
