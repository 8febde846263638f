package mutation

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

type patchOperations = []jsonpatch.Operation

// tree returns an object as JSON decodes it.
func tree(object runtime.Object) (map[string]any, error) {
	if custom, ok := object.(*unstructured.Unstructured); ok {
		return custom.Object, nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(object)
}

// graftPatch returns the object of a request with what differs between two forms of it, and the patch that makes it. What the
// forms do not have, such as a field that their Go type does not know, stays as it is.
func graftPatch(raw []byte, before, after runtime.Object) ([]byte, patchOperations, error) {
	text, err := rawjson.Parse(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("object: %w", err)
	}
	var sent map[string]any
	var changed *fields
	treeOf := tree
	if _, custom := before.(*unstructured.Unstructured); custom {
		err = utiljson.Unmarshal(raw, &sent)
	} else {
		if changed = differing(before, after); changed == nil {
			return nil, nil, nil
		}
		sent, err = changed.read(text)
		treeOf = changed.tree
	}
	if err != nil {
		return nil, nil, fmt.Errorf("object: %w", err)
	}
	from, err := treeOf(before)
	if err != nil {
		return nil, nil, err
	}
	to, err := treeOf(after)
	if err != nil {
		return nil, nil, err
	}
	if reflect.DeepEqual(from, to) {
		return nil, nil, nil
	}
	grafted, _ := graft(sent, from, to).(map[string]any)
	var operations patchOperations
	difference(&operations, "", sent, grafted)
	out, err := write(text, changed, grafted)
	return out, operations, err
}

// Rebase returns the patch that changes another form of an object, such as one without defaults, as an object was changed: sent, before
// and after are JSON. It is nil if nothing was changed.
func Rebase(sent, before, after []byte) ([]jsonpatch.Operation, error) {
	var forms [2]unstructured.Unstructured
	for i, text := range [][]byte{before, after} {
		if err := utiljson.Unmarshal(text, &forms[i].Object); err != nil {
			return nil, fmt.Errorf("object: %w", err)
		}
	}
	_, patch, err := graftPatch(sent, &forms[0], &forms[1])
	return patch, err
}

// difference appends the operations that make one value of another, in the order of their paths.
func difference(out *patchOperations, path string, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch after := after.(type) {
	case map[string]any:
		if before, ok := before.(map[string]any); ok {
			names := maps.Clone(before)
			maps.Copy(names, after)
			for _, name := range slices.Sorted(maps.Keys(names)) {
				old, was := before[name]
				value, is := after[name]
				if was && is && reflect.DeepEqual(old, value) {
					continue
				}
				at := path + "/" + pointer(name)
				switch {
				case !is:
					*out = append(*out, jsonpatch.Operation{Operation: "remove", Path: at})
				case !was:
					*out = append(*out, jsonpatch.Operation{Operation: "add", Path: at, Value: value})
				default:
					difference(out, at, old, value)
				}
			}
			return
		}
	case []any:
		if before, ok := before.([]any); ok {
			listDifference(out, path, before, after)
			return
		}
	}
	*out = append(*out, jsonpatch.Operation{Operation: "replace", Path: path, Value: after})
}

// listDifference is difference for lists. What they begin and end with in common stays as it is.
func listDifference(out *patchOperations, path string, before, after []any) {
	first, last := 0, 0
	for most := min(len(before), len(after)); first < most && reflect.DeepEqual(before[first], after[first]); {
		first++
	}
	for most := min(len(before), len(after)) - first; last < most && reflect.DeepEqual(before[len(before)-1-last], after[len(after)-1-last]); {
		last++
	}
	at := func(i int) string { return path + "/" + strconv.Itoa(i) }
	i := first
	for ; i < min(len(before), len(after))-last; i++ {
		difference(out, at(i), before[i], after[i])
	}
	for k := len(before) - last - 1; k >= i; k-- {
		*out = append(*out, jsonpatch.Operation{Operation: "remove", Path: at(k)})
	}
	for ; i < len(after)-last; i++ {
		*out = append(*out, jsonpatch.Operation{Operation: "add", Path: at(i), Value: after[i]})
	}
}

// graft returns a value that was sent with the difference between two forms of it.
func graft(sent, before, after any) any {
	if reflect.DeepEqual(before, after) {
		return sent
	}
	switch after := after.(type) {
	case map[string]any:
		sent, isMap := sent.(map[string]any)
		before, wasMap := before.(map[string]any)
		if !isMap || !wasMap {
			return after
		}
		out := maps.Clone(sent)
		for name := range before {
			if _, stays := after[name]; !stays {
				delete(out, name)
			}
		}
		for name, value := range after {
			old, was := before[name]
			own, has := out[name]
			switch {
			case was && has:
				out[name] = graft(own, old, value)
			case !was || !reflect.DeepEqual(old, value):
				out[name] = value
			}
		}
		return out
	case []any:
		sent, isList := sent.([]any)
		before, wasList := before.([]any)
		if !isList || !wasList || len(sent) != len(before) {
			return after
		}
		return graftList(sent, before, after)
	default:
		return after
	}
}

// graftList is graft for lists of which the one that was sent has the elements of the one before.
func graftList(sent, before, after []any) []any {
	out, taken := make([]any, len(after)), make([]bool, len(before))
	for k, value := range after {
		found := -1
		for i := range before {
			if !taken[i] && isSameElement(before[i], value) && (found < 0 || i == k) {
				found = i
			}
		}
		if found < 0 {
			out[k] = value
			continue
		}
		taken[found] = true
		out[k] = graft(sent[found], before[found], value)
	}
	return out
}

// isSameElement reports whether two elements of lists are forms of one: they are equal, or have the same name.
func isSameElement(a, b any) bool {
	one, isMap := a.(map[string]any)
	other, areMaps := b.(map[string]any)
	if !isMap || !areMaps {
		return reflect.DeepEqual(a, b)
	}
	for _, key := range [...]string{"name", "key", "containerPort", "port", "mountPath", "type", "uid", "ip"} {
		if value, has := one[key]; has && other[key] != nil {
			return reflect.DeepEqual(value, other[key])
		}
	}
	return reflect.DeepEqual(a, b)
}

// maxChanges is how many changes of a mutation are named.
const maxChanges = 100

// maxValue is how many bytes of a value are shown.
const maxValue = 512

// changesOf returns how one form of an object differs from another.
func changesOf(before, after runtime.Object) []Change {
	from, err := tree(before)
	if err != nil {
		return nil
	}
	to, err := tree(after)
	if err != nil {
		return nil
	}
	var out []Change
	collect(&out, "", from, to)
	return out
}

// collect appends the changes below a path, in the order of the paths.
func collect(out *[]Change, path string, before, after any) {
	if len(*out) >= maxChanges || reflect.DeepEqual(before, after) {
		return
	}
	switch after := after.(type) {
	case map[string]any:
		if before, ok := before.(map[string]any); ok {
			names := maps.Clone(before)
			maps.Copy(names, after)
			for _, name := range slices.Sorted(maps.Keys(names)) {
				collect(out, path+"/"+pointer(name), before[name], after[name])
			}
			return
		}
	case []any:
		if before, ok := before.([]any); ok {
			for i := range max(len(before), len(after)) {
				var old, value any
				if i < len(before) {
					old = before[i]
				}
				if i < len(after) {
					value = after[i]
				}
				collect(out, path+"/"+strconv.Itoa(i), old, value)
			}
			return
		}
	}
	*out = append(*out, Change{path, shown(before), shown(after)})
}

// pointer returns a name as a part of a JSON pointer.
func pointer(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

func shown(value any) Value {
	if value == nil {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return Value(truncate.Bytes(string(text), maxValue))
}
