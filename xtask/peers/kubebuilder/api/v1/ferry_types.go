// Package v1 is what is stored, and the hub that other versions are converted through.
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	GroupVersion  = schema.GroupVersion{Group: "harbour.example.com", Version: "v1"}
	SchemeBuilder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypes(GroupVersion, &Ferry{}, &FerryList{})
		metav1.AddToGroupVersion(scheme, GroupVersion)
		return nil
	})
	AddToScheme = SchemeBuilder.AddToScheme
)

// Finalizer is taken off when the berth of a ferry is free again.
const Finalizer = "harbour.example.com/berth"

type FerrySpec struct {
	Line       string `json:"line"`
	Passengers int32  `json:"passengers,omitempty"`
	Captain    string `json:"captain,omitempty"`
}

type FerryStatus struct {
	Berth              string             `json:"berth,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

type Ferry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   FerrySpec   `json:"spec,omitempty"`
	Status FerryStatus `json:"status,omitempty"`
}

type FerryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Ferry `json:"items"`
}

// Hub marks the version that others are converted to and from.
func (*Ferry) Hub() {}

func (in *Ferry) DeepCopyObject() runtime.Object {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = append([]metav1.Condition(nil), in.Status.Conditions...)
	return &out
}

func (in *FerryList) DeepCopyObject() runtime.Object {
	out := *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Ferry, 0, len(in.Items))
	for i := range in.Items {
		out.Items = append(out.Items, *in.Items[i].DeepCopyObject().(*Ferry))
	}
	return &out
}
