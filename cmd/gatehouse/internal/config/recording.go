package config

import (
	"path/filepath"
	"slices"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// record reads a RecordingConfiguration, and compiles it to find its errors.
func (o *object) record() {
	var v v1alpha1.RecordingConfiguration
	if !o.decodeInto(&v) {
		return
	}
	o.config.Recording = &v
	_, found := record.CompileRules(o.source, &v)
	for _, f := range found {
		if f.Severity == diagnostic.Warning {
			o.warnings = append(o.warnings, f)
		} else {
			o.found = append(o.found, f)
		}
	}
}

// ReadRecording reads the RecordingConfiguration of a file, which holds nothing else. The diagnostics
// are errors and warnings; with an error there is no configuration.
func ReadRecording(path string) (*v1alpha1.RecordingConfiguration, diagnostic.List) {
	documents, found := Documents(path)
	if found.Err() != nil {
		return nil, found
	}
	d := newDecoder(&tree{limits: defaultLimits()})
	for i := range documents {
		o := object{decoder: d, source: documents[i].Source, file: documents[i].File}
		o.read(documents[i].Value)
	}
	d.found.Sort()
	if len(d.found) == 0 && (d.config.Recording == nil || len(documents) > 1) {
		d.found = diagnostic.List{{
			Severity: diagnostic.Error, Source: filepath.ToSlash(path), Message: "must hold one document, a " + recordingConfig,
			Hint: "write apiVersion: " + v1alpha1.GroupVersion.String() + " and kind: " + recordingConfig,
		}}
	}
	all := slices.Concat(d.found, d.warnings)
	if all.Err() != nil {
		return nil, all
	}
	return d.config.Recording, all
}
