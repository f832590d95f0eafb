/* Operations of atomic domains. */
#ifndef CONDUIT_GEX_RATOMIC_H
#define CONDUIT_GEX_RATOMIC_H

#include <string.h>

#include <conduit_gex/entries.h>
#include <conduit_gex/rma.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first fields of a domain. `direct` is nonzero if the domain's team is the job's and the
 * processor itself can perform the operations. */
struct conduit_gex_ad_s {
  uint32_t direct;
};

gex_Event_t conduit_gex_ad_nb(gex_AD_t ad, void *result, gex_Rank_t rank, void *remote, gex_OP_t op, uint64_t first,
                              uint64_t second, gex_DT_t type, gex_Flags_t flags);
int conduit_gex_ad_nbi(gex_AD_t ad, void *result, gex_Rank_t rank, void *remote, gex_OP_t op, uint64_t first,
                       uint64_t second, gex_DT_t type, gex_Flags_t flags);

/* Locates an aligned number that this processor may operate on directly. */
CONDUIT_GEX_INLINE int conduit_gex_ad_mapped(gex_AD_t ad_, gex_Rank_t rank_, void *remote_, size_t bytes_, char **here_) {
  return !CONDUIT_GEX_CHECKED && CONDUIT_GEX_LIKELY(ad_ != NULL) && ad_->direct && (uintptr_t)remote_ % bytes_ == 0 &&
         CONDUIT_GEX_LIKELY(rank_ < CONDUIT_GEX_NEAR_RANKS) && conduit_gex_mapped(rank_, remote_, bytes_, here_);
}

/* Performs an operation on an integer that is mapped here. Returns 0 and does nothing if the
 * integer is not mapped or the operation has no case below. If the operation is a compile-time
 * constant, only one branch remains. Otherwise the library is called, because a call is smaller
 * than all branches. */
#define CONDUIT_GEX_AD_HERE(name_, type_)                                                                                  \
  CONDUIT_GEX_INLINE int conduit_gex_ad_here_##name_(gex_AD_t ad_, type_ *result_, gex_Rank_t rank_, void *remote_,        \
                                                     gex_OP_t op_, type_ first_, type_ second_) {                          \
    char *here_ = NULL;                                                                                                    \
    type_ *at_;                                                                                                            \
    if (!__builtin_constant_p(op_) || !conduit_gex_ad_mapped(ad_, rank_, remote_, sizeof(type_), &here_)) return 0;        \
    at_ = (type_ *)(void *)here_;                                                                                          \
    switch (op_) {                                                                                                         \
      case GEX_OP_GET: *result_ = __atomic_load_n(at_, __ATOMIC_ACQUIRE); return 1;                                        \
      case GEX_OP_SET: __atomic_exchange_n(at_, first_, __ATOMIC_ACQ_REL); return 1;                                       \
      case GEX_OP_SWAP: *result_ = __atomic_exchange_n(at_, first_, __ATOMIC_ACQ_REL); return 1;                           \
      case GEX_OP_ADD: __atomic_fetch_add(at_, first_, __ATOMIC_ACQ_REL); return 1;                                        \
      case GEX_OP_FADD: *result_ = __atomic_fetch_add(at_, first_, __ATOMIC_ACQ_REL); return 1;                            \
      case GEX_OP_SUB: __atomic_fetch_sub(at_, first_, __ATOMIC_ACQ_REL); return 1;                                        \
      case GEX_OP_FSUB: *result_ = __atomic_fetch_sub(at_, first_, __ATOMIC_ACQ_REL); return 1;                            \
      case GEX_OP_INC: __atomic_fetch_add(at_, 1, __ATOMIC_ACQ_REL); return 1;                                             \
      case GEX_OP_FINC: *result_ = __atomic_fetch_add(at_, 1, __ATOMIC_ACQ_REL); return 1;                                 \
      case GEX_OP_DEC: __atomic_fetch_sub(at_, 1, __ATOMIC_ACQ_REL); return 1;                                             \
      case GEX_OP_FDEC: *result_ = __atomic_fetch_sub(at_, 1, __ATOMIC_ACQ_REL); return 1;                                 \
      case GEX_OP_AND: __atomic_fetch_and(at_, first_, __ATOMIC_ACQ_REL); return 1;                                        \
      case GEX_OP_FAND: *result_ = __atomic_fetch_and(at_, first_, __ATOMIC_ACQ_REL); return 1;                            \
      case GEX_OP_OR: __atomic_fetch_or(at_, first_, __ATOMIC_ACQ_REL); return 1;                                          \
      case GEX_OP_FOR: *result_ = __atomic_fetch_or(at_, first_, __ATOMIC_ACQ_REL); return 1;                              \
      case GEX_OP_XOR: __atomic_fetch_xor(at_, first_, __ATOMIC_ACQ_REL); return 1;                                        \
      case GEX_OP_FXOR: *result_ = __atomic_fetch_xor(at_, first_, __ATOMIC_ACQ_REL); return 1;                            \
      case GEX_OP_CAS:                                                                                                     \
      case GEX_OP_FCAS:                                                                                                    \
        __atomic_compare_exchange_n(at_, &first_, second_, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);                         \
        if (op_ == GEX_OP_FCAS) *result_ = first_;                                                                         \
        return 1;                                                                                                          \
      default: return 0;                                                                                                   \
    }                                                                                                                      \
  }

/* The same for floats. An operation that computes or compares is repeated until no other change
 * has intervened. */
#define CONDUIT_GEX_AD_HERE_FLOAT(name_, type_, bits_t_)                                                                   \
  CONDUIT_GEX_INLINE int conduit_gex_ad_here_##name_(gex_AD_t ad_, type_ *result_, gex_Rank_t rank_, void *remote_,        \
                                                     gex_OP_t op_, type_ first_, type_ second_) {                          \
    typedef bits_t_ __attribute__((__may_alias__)) conduit_gex_bits_;                                                      \
    char *here_ = NULL;                                                                                                    \
    conduit_gex_bits_ *at_;                                                                                                \
    bits_t_ old_, new_;                                                                                                    \
    if (!__builtin_constant_p(op_) || !conduit_gex_ad_mapped(ad_, rank_, remote_, sizeof(type_), &here_)) return 0;        \
    at_ = (conduit_gex_bits_ *)(void *)here_;                                                                              \
    memcpy(&new_, &first_, sizeof(new_));                                                                                  \
    if (op_ == GEX_OP_GET) {                                                                                               \
      old_ = __atomic_load_n(at_, __ATOMIC_ACQUIRE);                                                                       \
    } else if (op_ == GEX_OP_SET || op_ == GEX_OP_SWAP) {                                                                  \
      old_ = __atomic_exchange_n(at_, new_, __ATOMIC_ACQ_REL);                                                             \
    } else if (op_ == GEX_OP_CAS || op_ == GEX_OP_FCAS) {                                                                  \
      old_ = new_;                                                                                                         \
      memcpy(&new_, &second_, sizeof(new_));                                                                               \
      __atomic_compare_exchange_n(at_, &old_, new_, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);                                \
    } else {                                                                                                               \
      old_ = __atomic_load_n(at_, __ATOMIC_RELAXED);                                                                       \
      do {                                                                                                                 \
        type_ value_;                                                                                                      \
        memcpy(&value_, &old_, sizeof(value_));                                                                            \
        switch (op_) {                                                                                                     \
          case GEX_OP_ADD: case GEX_OP_FADD: value_ += first_; break;                                                      \
          case GEX_OP_SUB: case GEX_OP_FSUB: value_ -= first_; break;                                                      \
          case GEX_OP_MULT: case GEX_OP_FMULT: value_ *= first_; break;                                                    \
          case GEX_OP_MIN: case GEX_OP_FMIN: value_ = value_ < first_ ? value_ : first_; break;                            \
          case GEX_OP_MAX: case GEX_OP_FMAX: value_ = value_ > first_ ? value_ : first_; break;                            \
          case GEX_OP_INC: case GEX_OP_FINC: value_ += 1; break;                                                           \
          case GEX_OP_DEC: case GEX_OP_FDEC: value_ -= 1; break;                                                           \
          default: return 0;                                                                                               \
        }                                                                                                                  \
        memcpy(&new_, &value_, sizeof(new_));                                                                              \
      } while (!__atomic_compare_exchange_n(at_, &old_, new_, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));                     \
    }                                                                                                                      \
    /* Fetching form. */                                                                                                   \
    if (GEX_OP_TO_NONFETCHING(op_)) memcpy(result_, &old_, sizeof(old_));                                                  \
    return 1;                                                                                                              \
  }

/* A number is passed as its bits, in the low-order bits of a word. Names are spelled out in full
 * so that a search finds them. */
#define CONDUIT_GEX_AD_OP(name_, type_, bits_t_, code_, nb_, nbi_)                                                       \
  CONDUIT_GEX_INLINE uint64_t conduit_gex_ad_bits_##name_(type_ value_) {                                                \
    bits_t_ bits_;                                                                                                       \
    memcpy(&bits_, &value_, sizeof(bits_));                                                                              \
    return bits_;                                                                                                        \
  }                                                                                                                      \
                                                                                                                         \
  CONDUIT_GEX_INLINE gex_Event_t nb_(gex_AD_t ad_, type_ *result_, gex_Rank_t rank_, void *remote_, gex_OP_t op_,        \
                                     type_ first_, type_ second_, gex_Flags_t flags_) {                                  \
    if (conduit_gex_ad_here_##name_(ad_, result_, rank_, remote_, op_, first_, second_)) return GEX_EVENT_INVALID;       \
    return conduit_gex_ad_nb(ad_, result_, rank_, remote_, op_, conduit_gex_ad_bits_##name_(first_),                     \
                             conduit_gex_ad_bits_##name_(second_), code_, flags_);                                       \
  }                                                                                                                      \
                                                                                                                         \
  CONDUIT_GEX_INLINE int nbi_(gex_AD_t ad_, type_ *result_, gex_Rank_t rank_, void *remote_, gex_OP_t op_, type_ first_, \
                              type_ second_, gex_Flags_t flags_) {                                                       \
    if (conduit_gex_ad_here_##name_(ad_, result_, rank_, remote_, op_, first_, second_)) return 0;                       \
    return conduit_gex_ad_nbi(ad_, result_, rank_, remote_, op_, conduit_gex_ad_bits_##name_(first_),                    \
                              conduit_gex_ad_bits_##name_(second_), code_, flags_);                                      \
  }

CONDUIT_GEX_AD_HERE(I32, int32_t)
CONDUIT_GEX_AD_HERE(U32, uint32_t)
CONDUIT_GEX_AD_HERE(I64, int64_t)
CONDUIT_GEX_AD_HERE(U64, uint64_t)
CONDUIT_GEX_AD_HERE_FLOAT(FLT, float, uint32_t)
CONDUIT_GEX_AD_HERE_FLOAT(DBL, double, uint64_t)

CONDUIT_GEX_AD_OP(I32, int32_t, uint32_t, GEX_DT_I32, gex_AD_OpNB_I32, gex_AD_OpNBI_I32)
CONDUIT_GEX_AD_OP(U32, uint32_t, uint32_t, GEX_DT_U32, gex_AD_OpNB_U32, gex_AD_OpNBI_U32)
CONDUIT_GEX_AD_OP(I64, int64_t, uint64_t, GEX_DT_I64, gex_AD_OpNB_I64, gex_AD_OpNBI_I64)
CONDUIT_GEX_AD_OP(U64, uint64_t, uint64_t, GEX_DT_U64, gex_AD_OpNB_U64, gex_AD_OpNBI_U64)
CONDUIT_GEX_AD_OP(FLT, float, uint32_t, GEX_DT_FLT, gex_AD_OpNB_FLT, gex_AD_OpNBI_FLT)
CONDUIT_GEX_AD_OP(DBL, double, uint64_t, GEX_DT_DBL, gex_AD_OpNB_DBL, gex_AD_OpNBI_DBL)

#undef CONDUIT_GEX_AD_HERE
#undef CONDUIT_GEX_AD_HERE_FLOAT
#undef CONDUIT_GEX_AD_OP

#ifdef __cplusplus
}
#endif

#endif
