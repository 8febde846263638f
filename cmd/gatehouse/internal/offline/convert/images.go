package convert

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/jmespath"
)

// images returns the value of the name images: the parts of the image names of a pod's containers, by the names of the containers.
func (c *ruleConverter) images() jmespath.Value {
	out := jmespath.Value{Expr: celexpr.Raw("images"), Name: "images", Members: map[string]jmespath.Value{}}
	for _, list := range []string{"containers", "initContainers", "ephemeralContainers"} {
		spec := jmespath.Of(c.object, c.matched.types())
		for _, step := range c.templatePath() {
			spec = spec.Member(step)
		}
		containers := spec.Member(list)
		if !containers.Type.Elem().Is(reflect.TypeFor[corev1.Container]()) && !containers.Type.Elem().Is(reflect.TypeFor[corev1.EphemeralContainer]()) {
			continue
		}
		out.Members[list] = jmespath.Value{
			Expr: containers.List(), Present: containers.Present, Total: true, Type: containers.Type, Name: list, ByName: imageParts,
		}
	}
	return out
}

// templatePath returns the path of the pod's spec in the object.
func (c *ruleConverter) templatePath() []string {
	for _, path := range [][]string{{"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}} {
		of := c.matched.types()
		for _, step := range path {
			of, _ = of.Member(step)
		}
		if of.Is(reflect.TypeFor[corev1.PodSpec]()) {
			return path
		}
	}
	return []string{"spec"}
}

// imageParts returns the parts of the image name of a container.
func imageParts(container celexpr.Expr) jmespath.Value {
	text := celexpr.Plain(celexpr.String)
	image := celexpr.Field(container, "image")
	segments := celexpr.Call(image, "split", celexpr.Str("/"))
	first := celexpr.Index(segments, 0)
	// The first segment is a registry if it looks like the name of a host.
	isRegistry := celexpr.Call(image, "matches", celexpr.Str(`^(localhost|[^/]*[.:][^/]*)/`))
	rest := celexpr.If(isRegistry, celexpr.Call(image, "substring", celexpr.Add(celexpr.Func("size", first), celexpr.Int(1))), image)
	withoutDigest := celexpr.Index(celexpr.Call(rest, "split", celexpr.Str("@")), 0)
	path := celexpr.Index(celexpr.Call(withoutDigest, "split", celexpr.Str(":")), 0)
	hasTag := celexpr.Call(image, "matches", celexpr.Str(`:[^/@]+(@|$)`))
	tag := celexpr.Index(celexpr.Call(withoutDigest, "split", celexpr.Str(":")), 1)
	name := celexpr.Call(path, "substring", celexpr.Add(celexpr.Call(path, "lastIndexOf", celexpr.Str("/")), celexpr.Int(1)))
	return jmespath.Value{Expr: image, Name: "image", Members: map[string]jmespath.Value{
		"registry":  jmespath.Of(celexpr.If(isRegistry, first, celexpr.Str("docker.io")), text),
		"path":      jmespath.Of(path, text),
		"name":      jmespath.Of(name, text),
		"tag":       jmespath.Of(celexpr.If(hasTag, tag, celexpr.Str("latest")), text),
		"reference": jmespath.Of(image, text),
	}}
}
