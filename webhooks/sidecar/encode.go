package sidecar

import (
	"encoding/json"
	"slices"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

const statusPointer = "/metadata/annotations/sidecar.gatehouse.dev~1status"

// encode returns the patch: the operations of all profiles and the status annotation. It
// refuses a pod whose annotations are too long with them.
func (i *injector) encode() []jsonpatch.Operation {
	if len(i.status.Profiles) == 0 {
		return nil
	}
	i.keepEarlier()
	pod := i.pod.Pod
	metadata, annotations := i.hasMetadata()
	switch {
	case !metadata:
		i.status.NoteCreated("/metadata", pod.Metadata)
		i.status.NoteCreated("/metadata/annotations", nil)
		return i.withStatus("add", "/metadata", `{"annotations":{"`+v1alpha1.StatusAnnotation+`":`, `}}`)
	case !annotations:
		i.status.NoteCreated("/metadata/annotations", pod.Annotations)
		return i.withStatus("add", "/metadata/annotations", `{"`+v1alpha1.StatusAnnotation+`":`, `}`)
	case pod.StatusAnnotation != nil:
		return i.withStatus("replace", statusPointer, "", "")
	default:
		return i.withStatus("add", statusPointer, "", "")
	}
}

// keepEarlier adds what the pod's status annotation lists of other profiles and is there.
func (i *injector) keepEarlier() {
	earlier := i.request.status
	if earlier == nil {
		return
	}
	there, ours := i.pod.Pod.Names(), len(i.status.Profiles)
	for n := range earlier.Profiles {
		kept := earlier.Profiles[n].Prune(i.request.found, there)
		if !kept.IsEmpty() && !slices.ContainsFunc(i.status.Profiles[:ours], func(e status.Entry) bool { return e.Name == kept.Name }) {
			i.status.Profiles = append(i.status.Profiles, kept)
		}
	}
	i.status.Created = append(i.status.Created, earlier.Created...)
}

// withStatus returns the operations and one that writes the status annotation, with what
// is around it.
func (i *injector) withStatus(operation, path, before, after string) []jsonpatch.Operation {
	text := i.status.Marshal()
	i.checkLength(text)
	const quotes = 64 // and the escapes of those inside
	value := append(make([]byte, 0, len(before)+len(text)+len(after)+quotes), before...)
	value = append(rawjson.AppendString(value, text), after...)
	return append(i.operations, jsonpatch.Operation{Operation: operation, Path: path, Value: json.RawMessage(value)})
}

// patched returns the text of the pod with all operations carried out: those of the profiles are
// splices of the text already, and the one that writes the status annotation is the last.
func (i *injector) patched(last jsonpatch.Operation) ([]byte, error) {
	text := rawjson.Value(podtext.Trim(i.pod.Text))
	if len(i.pod.Editor.Splices) > 0 {
		text = podtext.Trim(i.pod.Editor.Result())
	}
	value, _ := last.Value.(json.RawMessage)
	switch last.Path {
	case "/metadata":
		return merge.SetMember(text, text, "metadata", string(value))
	case "/metadata/annotations":
		return merge.SetMember(text, text.Get("metadata"), "annotations", string(value))
	default:
		return merge.SetMember(text, text.Get("metadata", "annotations"), v1alpha1.StatusAnnotation, string(value))
	}
}

// checkLength refuses a pod whose annotations are longer than the API server allows. Its
// own message would not name what is too long.
func (i *injector) checkLength(status string) {
	const limit = 256 << 10 // k8s.io/apimachinery/pkg/api/validation, TotalAnnotationSizeLimitB
	editor := &i.pod.Editor
	size := len(i.pod.Text) + len(status)
	for n := range editor.Splices {
		size += len(editor.Splices[n].Insert)
	}
	if size <= limit {
		return
	}
	text := i.pod.Text
	if len(editor.Splices) > 0 {
		text = editor.Result()
	}
	size = len(v1alpha1.StatusAnnotation) + len(status)
	for name, value := range rawjson.Value(text).Get("metadata", "annotations").Members() {
		if !name.Is(v1alpha1.StatusAnnotation) {
			size += len(name.Text()) + len(value.Text())
		}
	}
	if size > limit {
		i.messages.refuse("metadata.annotations", "shorten the annotations, or decline profiles with the annotation "+v1alpha1.InjectAnnotation,
			"with the status of sidecar profiles, the annotations have %d bytes: the API server allows %d", size, limit)
	}
}

// hasMetadata reports whether the pod has metadata and annotations once all operations
// are carried out.
func (i *injector) hasMetadata() (metadata, annotations bool) {
	pod := i.pod.Pod
	metadata, annotations = pod.Metadata.Kind() == rawjson.Object, pod.Annotations.Kind() == rawjson.Object
	for n := range i.operations {
		switch i.operations[n].Path {
		case "/metadata":
			metadata = true
			text, _ := i.operations[n].Value.(json.RawMessage)
			annotations = annotations || rawjson.Value(text).Get("annotations").Kind() == rawjson.Object
		case "/metadata/annotations":
			annotations = true
		}
	}
	return metadata, annotations
}
