//===- LsmReference.h - the scan as a float64 recurrence over single tokens, and its adjoint ----------------------===//
//
//   M~ = exp(g_t) M_{t-1};   u_t = v_t, or beta_t (v_t - k_t M~) for H and GH;   M_t = M~ + k_t^T u_t;   o_t = scale
//   q_t M_t D_t = scale q_t^T do_t + ..;  p = k D;  plain: dk = v D^T, dv = p; delta: r = v - k M~, dv = beta p, dbeta
//   = p.r, dk = u D^T - dv M~^T, D <- D - k^T dv;  dg = <D, M~>, D <- exp(g) D
//
// The definition of the operator, without chunks: what the kernels are compared with.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef TEST_KERNELS_LSMREFERENCE_H
#define TEST_KERNELS_LSMREFERENCE_H

#include "test/kernels/Compare.h"

#include <climits>

namespace braid::test {

/// Inputs of lsm.scan and lsm.scan_grad, row-major as the op has them. Unused gates stay empty.
struct Scan {
  std::string kind; ///< I S0 S V H GH
  int64_t B, T, H, K, V;
  double scale;
  Numbers q, k, v, g, beta, initial, dO, dFinal;
  std::vector<int32_t> documents;

  bool delta() const { return kind == "H" || kind == "GH"; }
  bool decays() const { return kind != "I" && kind != "H"; }
  /// Elements of log_decay per (b, t, h).
  int64_t decayWidth() const { return kind == "V" ? K : 1; }
  double decay(int64_t b, int64_t t, int64_t h, int64_t d) const {
    if (!decays())
      return 0;
    if (kind == "S0")
      return g[h];
    return g[((b * T + t) * H + h) * decayWidth() + (kind == "V" ? d : 0)];
  }
};

struct ScanResults {
  Numbers o, final, dq, dk, dv, dg, dbeta, dInitial;
};

inline ScanResults referenceScan(const Scan &x) {
  int64_t B = x.B, T = x.T, H = x.H, K = x.K, V = x.V, W = x.decayWidth();
  ScanResults out;
  out.o.assign(B * T * H * V, 0), out.final.assign(B * H * K * V, 0), out.dq.assign(B * T * H * K, 0);
  out.dk = out.dq, out.dv = out.o, out.dg.assign(B * T * H * W, 0), out.dbeta.assign(B * T * H, 0);
  out.dInitial = out.final;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h) {
      auto token = [&](int64_t t, int64_t size) { return ((b * T + t) * H + h) * size; };
      int64_t state = (b * H + h) * K * V;
      Numbers m(x.initial.begin() + state, x.initial.begin() + state + K * V);
      // Per token: decayed state before the write, pseudo value, state after it.
      std::vector<Numbers> before(T), written(T), after(T);
      for (int64_t t = 0; t < T; ++t) {
        int32_t document = x.documents[b * T + t];
        if (document == INT32_MAX)
          continue;
        if (document == t)
          m.assign(K * V, 0);
        for (int64_t d = 0; d < K; ++d)
          for (int64_t e = 0; e < V; ++e)
            m[d * V + e] *= std::exp(x.decay(b, t, h, d));
        before[t] = m;
        const double *q = &x.q[token(t, K)], *k = &x.k[token(t, K)], *v = &x.v[token(t, V)];
        Numbers u(v, v + V);
        if (x.delta())
          for (int64_t e = 0; e < V; ++e) {
            for (int64_t d = 0; d < K; ++d)
              u[e] -= k[d] * m[d * V + e];
            u[e] *= x.beta[token(t, 1)];
          }
        for (int64_t d = 0; d < K; ++d)
          for (int64_t e = 0; e < V; ++e) {
            m[d * V + e] += k[d] * u[e];
            out.o[token(t, V) + e] += x.scale * q[d] * m[d * V + e];
          }
        written[t] = u, after[t] = m;
      }
      std::copy(m.begin(), m.end(), out.final.begin() + state);

      Numbers D(x.dFinal.begin() + state, x.dFinal.begin() + state + K * V);
      for (int64_t t = T - 1; t >= 0; --t) {
        int32_t document = x.documents[b * T + t];
        if (document == INT32_MAX)
          continue;
        const double *q = &x.q[token(t, K)], *k = &x.k[token(t, K)], *v = &x.v[token(t, V)], *d = &x.dO[token(t, V)];
        const Numbers &u = written[t], &tilde = before[t];
        double *dq = &out.dq[token(t, K)], *dk = &out.dk[token(t, K)], *dv = &out.dv[token(t, V)];
        for (int64_t i = 0; i < K; ++i)
          for (int64_t e = 0; e < V; ++e) {
            D[i * V + e] += x.scale * q[i] * d[e];
            dq[i] += x.scale * d[e] * after[t][i * V + e];
          }
        Numbers p(V, 0);
        for (int64_t i = 0; i < K; ++i)
          for (int64_t e = 0; e < V; ++e) {
            p[e] += k[i] * D[i * V + e];
            dk[i] += u[e] * D[i * V + e];
          }
        for (int64_t e = 0; e < V; ++e)
          dv[e] = p[e];
        if (x.delta()) {
          double beta = x.beta[token(t, 1)];
          for (int64_t e = 0; e < V; ++e) {
            double r = v[e];
            for (int64_t i = 0; i < K; ++i)
              r -= k[i] * tilde[i * V + e];
            out.dbeta[token(t, 1)] += p[e] * r;
            dv[e] = beta * p[e];
            for (int64_t i = 0; i < K; ++i) {
              dk[i] -= dv[e] * tilde[i * V + e];
              D[i * V + e] -= k[i] * dv[e];
            }
          }
        }
        for (int64_t i = 0; i < K; ++i)
          for (int64_t e = 0; e < V; ++e) {
            out.dg[token(t, W) + (W > 1 ? i : 0)] += D[i * V + e] * tilde[i * V + e];
            D[i * V + e] *= std::exp(x.decay(b, t, h, i));
          }
        if (document == t)
          D.assign(K * V, 0);
      }
      std::copy(D.begin(), D.end(), out.dInitial.begin() + state);
    }
  return out;
}

} // namespace braid::test

#endif // TEST_KERNELS_LSMREFERENCE_H
