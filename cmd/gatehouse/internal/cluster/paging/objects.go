package paging

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

// Objects calls visit with each object that a dynamic client lists: page by page, or all at once if a page has expired. All are in
// memory before the first is visited. It returns the error of visit as it is.
func Objects(
	ctx context.Context, list func(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error), options metav1.ListOptions,
	visit func(*unstructured.Unstructured) error,
) error {
	all, _, err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }).List(ctx, options)
	if err != nil {
		return err
	}
	return meta.EachListItem(all, func(item runtime.Object) error {
		return visit(item.(*unstructured.Unstructured)) //nolint:forcetypeassert // the list has nothing else
	})
}
