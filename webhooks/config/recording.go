package config

import "github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"

// Recording is a RecordingConfiguration as it is written. Its paths are not checked: the recorder compiles them.
type Recording struct {
	v1alpha1.RecordingConfiguration
	// Source is the place of the document in diagnostics.
	Source string
}

// record reads a RecordingConfiguration.
func (o *object) record() {
	var v v1alpha1.RecordingConfiguration
	if o.decodeInto(&v) {
		o.config.Recording = &Recording{RecordingConfiguration: v, Source: o.source}
	}
}
