// Package v2 says with more words what v1 says.
package v2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	v1 "setpoint/peers/kubebuilder/api/v1"
)

var (
	GroupVersion  = schema.GroupVersion{Group: "harbour.example.com", Version: "v2"}
	SchemeBuilder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypes(GroupVersion, &Ferry{}, &FerryList{})
		metav1.AddToGroupVersion(scheme, GroupVersion)
		return nil
	})
	AddToScheme = SchemeBuilder.AddToScheme
)

type Capacity struct {
	Passengers int32 `json:"passengers,omitempty"`
}

type FerrySpec struct {
	Line     string   `json:"line"`
	Capacity Capacity `json:"capacity,omitempty"`
	Crew     []string `json:"crew,omitempty"`
}

type Ferry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   FerrySpec      `json:"spec,omitempty"`
	Status v1.FerryStatus `json:"status,omitempty"`
}

type FerryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Ferry `json:"items"`
}

func (in *Ferry) ConvertTo(hub conversion.Hub) error {
	out := hub.(*v1.Ferry)
	out.ObjectMeta = in.ObjectMeta
	out.Status = in.Status
	out.Spec = v1.FerrySpec{Line: in.Spec.Line, Passengers: in.Spec.Capacity.Passengers}
	if len(in.Spec.Crew) > 0 {
		out.Spec.Captain = in.Spec.Crew[0]
	}
	return nil
}

func (out *Ferry) ConvertFrom(hub conversion.Hub) error {
	in := hub.(*v1.Ferry)
	out.ObjectMeta = in.ObjectMeta
	out.Status = in.Status
	out.Spec = FerrySpec{Line: in.Spec.Line, Capacity: Capacity{Passengers: in.Spec.Passengers}}
	if in.Spec.Captain != "" {
		out.Spec.Crew = []string{in.Spec.Captain}
	}
	return nil
}

func (in *Ferry) DeepCopyObject() runtime.Object {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Crew = append([]string(nil), in.Spec.Crew...)
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
