package podsecurity

import (
	"reflect"
	"strings"
)

// HasString reports whether a string that checks read satisfies the function. Of the annotations, checks
// read those of AppArmor and seccomp alone.
func (p *Pod) HasString(is func(string) bool) bool {
	for key, value := range p.Metadata.Annotations {
		if (strings.Contains(key, "apparmor.security.") || strings.Contains(key, "seccomp.security.")) && is(value) {
			return true
		}
	}
	return hasString(reflect.ValueOf(&p.Spec).Elem(), is)
}

func hasString(v reflect.Value, is func(string) bool) bool {
	switch v.Kind() { //nolint:exhaustive // the others hold no strings in a decoded pod
	case reflect.String:
		return is(v.String())
	case reflect.Pointer:
		return !v.IsNil() && hasString(v.Elem(), is)
	case reflect.Slice:
		for i := range v.Len() {
			if hasString(v.Index(i), is) {
				return true
			}
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if hasString(field, is) {
				return true
			}
		}
	}
	return false
}
