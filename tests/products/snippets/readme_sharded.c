/* ranks: 2; prints: rank 1 of 2: w = 3.47 */
/* SNIPPET */
