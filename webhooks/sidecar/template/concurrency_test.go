package template_test

import (
	"reflect"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// One scope and one tree serve many requests at a time; the race detector
// watches.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	s := scope(t)
	tree := compile(t, s, container, reflect.TypeFor[corev1.Container]())
	loop := compile(t, s, `"${pod.spec.containers.map(c, c.name).join('-') + params.image}"`, reflect.TypeFor[string]())
	for i := range 8 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			image := "proxy:" + strconv.Itoa(i)
			in := input(t, s, map[string]string{"image": image})
			for range 20 {
				if out, err := loop.Append(nil, in); err != nil || string(out) != `"app-log`+image+`"` {
					t.Errorf("got %s, %v", out, err)
				}
				if _, err := tree.Append(nil, in); err != nil {
					t.Error(err)
				}
				if _, found := s.Condition("c", "pod.spec.priority == "+strconv.Itoa(i)); len(found) > 0 {
					t.Error(found)
				}
			}
		})
	}
}
